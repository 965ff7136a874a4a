import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_runs import HOSTILE, make_run, rollout, rollouts

from grpo_core.evaluation.intervals import RATE, UNBOUNDED
from grpo_core.report.curves import cells, curve, spans
from grpo_core.report.data import report_data
from grpo_core.report.page import embedded
from grpo_core.report.rollouts import drawer, gather
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import PluginError
from grpo_sdk.plugins.facts import Frame

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without the charts' library, which takes seconds to bundle; test_browser.py draws with it."""
    monkeypatch.setattr("grpo_core.report.page.chart_library", lambda: "")
    monkeypatch.chdir(tmp_path)


def data_of(page: Path) -> dict[str, Any]:
    """The data inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_the_page_holds_the_run_and_loads_nothing(capsys: Capture) -> None:
    run_dir = make_run(Path("run"), rollouts(10))
    with (run_dir / "logs" / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"step": 3')  # a half-written last line is left
    assert entry.main(["report", "run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["runs"][0]["rollouts"]["total"] == 160 and not Path("run/report.html").exists()
    assert entry.main(["report", "run"]) == 0
    assert capsys.readouterr().out.startswith("wrote     run/report.html: ")
    page = Path("run/report.html").read_text()
    assert "default-src 'none'" in page and "connect-src 'none'" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    (run,) = data_of(Path("run/report.html"))["runs"]
    assert run["rollouts"]["total"] == 160 and run["state"] == "finished"
    assert [each["phase"] for each in run["evaluations"]] == ["initial", "final"]
    assert ["trainer.prompts_per_step", "4", "run.yaml:3"] in run["settings"]
    assert ["seed", "0", "default"] in run["settings"]
    assert run["time"]["totals"] == {"generate_s": 5.0, "update_s": 2.5, "other_s": 2.5}


def test_hostile_text_ends_no_element() -> None:
    make_run(Path(f"run {HOSTILE[:8].replace('/', '')}"), [rollout(1, 0, 0, 1.0, text=HOSTILE, prompt=HOSTILE)])
    (path,) = Path().glob("run *")
    entry.main(["report", str(path), "--output", "page.html"])
    page = Path("page.html").read_text()
    assert page.count("</script") == 3 and "<img src=x" not in page
    assert data_of(Path("page.html"))["runs"][0]["rollouts"]["text"] == [HOSTILE]
    assert "<" not in embedded({"text": HOSTILE})


def test_what_a_run_lacks_is_said(capsys: Capture) -> None:
    run = make_run(Path("run"), events=[], steps=0)
    assert entry.main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    for missing in ("no logged step yet", "no held-out evaluation", "no completions (logs/rollouts.jsonl)"):
        assert missing in said
    (view,) = data_of(run / "report.html")["runs"]
    assert view["settings"][0][2] == ""  # an older run stores no sources
    lost = make_run(Path("lost"), rollouts(3))
    path = lost / "logs" / "rollouts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])["step"]
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] < last) + lines[-1][:20])
    assert entry.main(["report", "lost"]) == 0
    assert f"no completions of steps {last} to 10: logs/rollouts.jsonl ends before them" in capsys.readouterr().out


def test_evaluations_and_warnings_that_a_resume_has_abandoned_are_not_shown() -> None:
    def at(step: int, kind: str = "evaluation", **more: Any) -> dict[str, Any]:
        fields = {"task": "math.a", "phase": "interval", "result": {"solved_rate": 0.5}}
        return {"kind": kind, "step": step, **fields, **more}

    earlier = [at(0, "start", total_steps=10), at(2), at(6), at(6, "warning", message="old"), at(10, phase="final")]
    run = make_run(Path("run"), events=[*earlier, at(4, "start", total_steps=10), at(8)])
    (view,) = report_data([run])["runs"]
    assert [(each["phase"], each["step"]) for each in view["evaluations"]] == [("interval", 2), ("interval", 8)]
    assert view["warnings"] == []


@pytest.mark.parametrize(("file", "tail", "message"), [
    ("logs/events.jsonl", b"!\n", "events.jsonl:6: "),
    ("logs/train_log.jsonl", b'{"step":NaN}\n', "train_log.jsonl:11: "),
    ("logs/evaluations.jsonl", b"[]\n", "evaluations.jsonl:1: "),
    ("logs/rollouts.jsonl", b"{}\n", "rollouts.jsonl:161: "),
    ("summary.json", b'{"steps":', "the summary is damaged"),
])  # fmt: skip
def test_a_corrupt_file_costs_only_what_it_holds(file: str, tail: bytes, message: str, capsys: Capture) -> None:
    run = make_run(Path("run"), rollouts(10))
    with (run / file).open("ab") as opened:
        opened.write(tail)
    assert entry.main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert message in said and said.count(Path(file).name) == 1
    (view,) = data_of(run / "report.html")["runs"]
    assert (view["steps"], len(view["metrics"]["steps"]), len(view["evaluations"])) == (10, 10, 2)
    assert view["state"] == "finished" and view["warnings"] and len(view["rollouts"]["group"]) == 160


def test_two_runs_are_compared_by_prompt() -> None:
    for run, gain in (("a", 0.0), ("b", 0.8)):
        lines = rollouts(10, seed=1, gain=gain)
        make_run(Path(run), [{**line, "row": {"id": line["prompt_id"]}} for line in lines])
    data = report_data([Path("a"), Path("b")])
    training = [each for each in data["comparison"]["differences"] if each["what"].startswith("training reward")]
    assert [(each["run"], each["n"]) for each in training] == [("b", 12)]
    assert training[0]["low"] > 0.3
    problem = next(each for each in data["comparison"]["differences"] if each["what"] == "held-out")
    assert problem["problem"] == "no final evaluation of a and b"


def test_a_row_that_is_met_often_is_one_observation() -> None:
    # In every step b gains on row-0 and loses as much on row-1: however long, that says little about other rows.
    for run, solved in (("a", (0.0, 1.0)), ("b", (1.0, 0.25))):
        make_run(Path(run), [rollout(step, group, 0, solved[group]) for step in range(1, 81) for group in (0, 1)])
    differences = report_data([Path("a"), Path("b")])["comparison"]["differences"]
    (training,) = (each for each in differences if each["what"].startswith("training reward"))
    assert (training["value"], training["n"]) == (0.125, 2)
    assert training["low"] < 0 < training["high"]


def write_final_evaluation(
    run: str, solved: Sequence[int], label: str = "math.a", task: str = "math.a", **settings: object
) -> None:
    folder = Path("eval_runs") / f"{run}_{label}" / "step_final" / "temp0.0_p1.0_r1"
    folder.mkdir(parents=True)
    lines = [f"row{index},{value},{value}" for index, value in enumerate(solved)]
    (folder / "metrics.csv").write_text("\n".join(["row,solved_rate,reward", *lines, ""]))
    meta = {"run": run, "step": "step_final", "model": "tiny", "adapter": None, "task": task, "identity": "x",
            "settings": {"seed": 0, "temperature": 0.0, **settings}, "summary": {}, "timing": {},
            "version": 1}  # fmt: skip
    (folder / "run_meta.json").write_text(json.dumps(meta))


def held_out(*names: str) -> dict[str, Any]:
    differences = report_data([Path("runs", name) for name in names])["comparison"]["differences"]
    found: dict[str, Any] = next(each for each in differences if each["what"].startswith("held-out"))
    return found


def test_evaluations_of_two_seeds_are_compared_row_by_row_if_their_sampling_is_the_same() -> None:
    for seed, solved in enumerate(([0, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1])):
        make_run(Path("runs", str(seed)))
        write_final_evaluation(str(seed), solved, seed=seed, temperature=0.7 * (seed > 1))
    compared = held_out("0", "1")
    assert (compared["value"], compared["n"]) == (0.5, 4)
    assert held_out("0", "2")["problem"] == "not comparable: eval.temperature is 0.0 and 0.7"
    for run in ("a", "b"):
        final = {"kind": "evaluation", "step": 10, "task": "math.a?template=r1", "phase": "final"}
        make_run(Path("runs", run), events=[{**final, "result": {"solved_rate": 0.5}}])
        write_final_evaluation(run, [0, 1], label="math.a_template_r1", task="math.a?size=2&split=test&template=r1")
    compared = held_out("a", "b")
    assert (compared["task"], compared.get("n")) == ("math.a?template=r1", 2), "named by its spec"


def test_intervals_count_prompts() -> None:
    edges = spans(2)
    assert curve([1, 1, 2], [1.0, 1.0, 0.5], edges, RATE) == [
        [1, 1, 1.0, pytest.approx(0.342, abs=1e-3), 1.0, 2],
        [2, 2, 0.5, pytest.approx(0.055, abs=1e-3), pytest.approx(0.945, abs=1e-3), 1],
    ]
    assert curve([1], [float("nan")], edges, RATE) == []
    # Groups that are equal say nothing of the spread.
    assert curve([1, 1, 1], [0.0, 0.0, 0.0], spans(1), UNBOUNDED) == [[1, 1, 0.0, None, None, 3]]
    long = spans(100_000)
    assert len(long) == 61 and long[-1] > 100_000, "long runs have few points"
    found = cells(np.array([1, 1, 2]), np.array([0.0, 1.0, 1.0]), edges, 4)
    assert found is not None
    assert sum(share for x, _, _, _, share in found["cells"] if x == 1) == 1
    assert [mean for *_, mean in found["means"]] == [0.5, 1.0]


def test_the_abstentions_of_a_step_are_those_of_all_its_groups() -> None:
    values = {(1, 0): (None, 1.0), (1, 1): (None, None), (2, 0): (1.0, 1.0)}
    lines = [rollout(*where, sample, value) for where, group in values.items() for sample, value in enumerate(group)]
    curves, *_ = gather(make_run(Path("run"), lines), lambda record: ())
    assert curves["math.a?size=9"]["abstained"] == [[1, 3]]


def test_of_many_completions_whole_steps_are_kept() -> None:
    run = make_run(Path("run"), rollouts(10))
    curves, kept, _, _ = gather(run, lambda record: (), limit=40)
    assert kept is not None and kept["total"] == 160
    assert sorted({group[0] for group in kept["groups"]}) == [1, 5, 9]
    assert len(kept["text"]) == 48
    assert sum(point[5] for point in curves["math.a?size=9"]["reward"]) == 40  # the curves have all of them


def test_long_texts_lose_their_middle_and_tokens_are_paired_with_their_log_probs() -> None:
    tokens = {"token_texts": ["an", "swer"], "token_logprobs": [-0.1, -3.0]}
    long = rollout(1, 0, 1, 1.0, text="a" * 10_000 + "b" * 1_000_000 + "end")
    _, kept, _, _ = gather(make_run(Path("run"), [rollout(1, 0, 0, 1.0, **tokens), long]), lambda record: ())
    assert kept is not None
    text = kept["text"][1]
    assert len(text) < 8_100 and text.startswith("aaa") and text.endswith("bend")
    assert kept["problems"] == ["longer than 8000 characters, and the middle is left out: 1 completion"]
    assert kept["tables"]["vocabulary"] == ["an", "swer"]
    assert kept["pieces"] == [[0, 1], None] and kept["logprobs"] == [[-0.1, -3.0], None]


def test_drawings_are_kept_once_and_a_broken_plugin_is_named() -> None:
    run = make_run(Path("run"), rollouts(2))
    frame = Frame("a board", "<svg/>")
    _, kept, _, _ = gather(run, lambda record: (frame, frame))
    assert kept is not None
    assert kept["tables"]["frames"] == [["a board", "<svg/>", ""]] and kept["frames"][0] == [0, 0]
    calls = []

    def fail(*given: object) -> tuple[Frame, ...]:
        calls.append(given)
        raise PluginError("plugin 'math' is broken")

    _, kept, _, _ = gather(run, drawer(fail))
    assert kept is not None
    assert kept["problems"] == ["plugin 'math' is broken: 32 completions"] and len(calls) == 1
