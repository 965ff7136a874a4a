import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ears import Ears
from evaluation_runs import TASKS
from local_endpoint import Reply, completion, serving

from grpo_core import evaluate
from grpo_core.evaluation import one_model
from grpo_core.evaluation.held_out import prepare_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.fresh import fresh_model
from grpo_sdk import load_task
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.errors import UserError
from grpo_sdk.judges.usage import Usage

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate")
    for seed, name in enumerate(("model", "other")):
        for part in fresh_model("tiny", seed=seed):
            part.save_pretrained(path / name)
    (path / "tasks.py").write_text(TASKS)
    return path


@pytest.fixture
def spec(folder: Path) -> str:
    return f"{folder}/tasks.py:letters"


def without_timing(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {label: {**result, "timing": None, "base": None} for label, result in results.items()}


def test_the_split_of_the_spec_is_evaluated(folder: Path, spec: str) -> None:
    tasks, _ = prepare_tasks(f"{spec}?split=train", {}, EvaluationSettings(), rows_of_spec=True)
    assert [each.task.config.split for each in tasks.values()] == ["train"]
    tasks, _ = prepare_tasks(f"{spec}?split=train&size=3", {}, EvaluationSettings())
    (held,) = tasks.values()
    assert (held.task.config.split, len(held.rows)) == ("test", 8), "a training is evaluated on other rows"
    with pytest.raises(UserError, match=r"split=train names the split train.*give one"):
        evaluate(f"{spec}?split=train", str(folder / "model"), split="test")


@pytest.mark.parametrize(("options", "given", "rows"), [
    ("?size=3", {}, 3),
    ("?size=3", {"size": 5}, 5),
    ("", {}, 8),
    ("?size=500", {"size": None}, 8),
])  # fmt: skip
def test_the_size_of_the_spec_bounds_the_rows(spec: str, options: str, given: dict[str, int], rows: int) -> None:
    tasks, _ = prepare_tasks(spec + options, given, EvaluationSettings(), rows_of_spec=True)
    assert [len(each.rows) for each in tasks.values()] == [rows]


def test_one_greedy_completion_a_row(folder: Path, spec: str) -> None:
    watch = Ears()
    results = evaluate(spec, str(folder / "model"), callbacks=(watch,))
    (result,) = results.values()
    assert list(results) == [task for task, *_ in watch.results] == ["tasks.letters"]
    assert (result["n"], result["completions_per_row"], result["temperature"], result["split"]) == (8, 1, 0.0, "test")
    assert result["surprisal"]["mean"] > 0
    assert [each.name for each in watch.findings] == ["few-held-out-rows"]
    assert set(result["by_difficulty"]) == {"1", "2"}
    assert result["timing"]["tokens_per_s"] > 0 and result["timing"]["peak_memory_mib"] > 0
    assert watch.progress[-1] == ("evaluating tasks.letters", 8, 8)
    in_batches = evaluate(load_task(spec).task, str(folder / "model"), batch_size=3)  # an object, named as its spec
    for name in ("surprisal", "entropy"):  # products of other shapes round otherwise
        assert result.pop(name) == pytest.approx(in_batches["tasks.letters"].pop(name), abs=1e-6)
    assert without_timing(results) == without_timing(in_batches)


def test_several_completions_a_row_with_a_control_and_files(folder: Path, spec: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "size": 4, "base": str(folder / "other")}
    options |= {"n": 4, "output_dir": tmp_path}
    results = evaluate(spec, str(folder / "model"), **options)
    (result,) = results.values()
    assert (result["n"], result["completions_per_row"]) == (4, 4)
    assert {"pass@1", "pass@2", "pass@4"} <= set(result)
    assert result["delta"] == pytest.approx(result["solved_rate"] - result["base"]["solved_rate"])
    assert result["base"]["n"] == 4
    own = tmp_path / "model_tasks.letters"
    with gzip.open(own / "model" / "temp1.0_p1.0_r4" / "records.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    named = [(record["row"]["id"], record["sample"]) for record in records[:5]]
    assert named == [("q", 0), ("q", 1), ("q", 2), ("q", 3), ("r", 0)]
    assert len({record["text"] for record in records}) > 4, "samples of a row differ"
    assert (own / "base" / "temp1.0_p1.0_r4" / "metrics.csv").is_file()
    header, base, line = (own / "consolidated_metrics.csv").read_text().splitlines()
    assert (base.split(",")[0], line.split(",")[0]) == ("base", "model")
    assert "delta_ci_low" in header.split(",")
    with pytest.raises(UserError, match=r"holds an evaluation.*--overwrite"):
        evaluate(spec, str(folder / "model"), **options)
    again = evaluate(spec, str(folder / "model"), **options, overwrite=True)
    assert without_timing(again) == without_timing(results)
    # Samples are named by row and number alone: the first two of four are those that n = 2 gives.
    evaluate(spec, str(folder / "model"), **{**options, "n": 2, "size": 3, "output_dir": tmp_path / "two"})
    with gzip.open(tmp_path / "two" / own.name / "model" / "temp1.0_p1.0_r2" / "records.jsonl.gz", "rt") as file:
        two = [json.loads(line) for line in file]
    assert [each["text"] for each in two] == [each["text"] for each in records[:12] if each["sample"] < 2]


# --- endpoints; tests/engines/test_openai.py has their faults


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(OpenAIEngine.__init__.__kwdefaults__, "backoff_s", 0.01)


def first_letter(request: dict[str, Any]) -> Reply:
    return completion(request["prompt"][0])


def test_an_endpoint_is_evaluated_like_a_model(spec: str, tmp_path: Path) -> None:
    watch = Ears()
    options: dict[str, Any] = {"n": 2, "temperature": 0.5, "top_p": 0.9, "concurrency": 1}
    with serving(first_letter) as server:
        results = evaluate(spec, "served", endpoint=server.url, output_dir=tmp_path, callbacks=(watch,), **options)
    (result,) = results.values()
    assert (result["solved_rate"], result["n"], result["abstained"], result["pass@2"]) == (1.0, 8, 0, 1.0)
    assert (result["mean_length"], server.most_in_flight) == (2, 1)
    assert "surprisal" not in result, "an endpoint shows no distribution"
    sent = server.seen[0]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == ("served", 0.5, 0.9, 4)
    assert len({request["seed"] for request in server.seen}) == 16
    assert KEY not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert server.seen[0]["key"] == f"Bearer {KEY}"
    with pytest.raises(UserError, match="neither --base nor --adapter"):
        evaluate(spec, "served", endpoint=server.url, base="tiny")


def test_a_few_failures_abstain_and_are_told_once(spec: str) -> None:
    def mostly(request: dict[str, Any]) -> Reply:
        return (400, b"too rude") if request["prompt"] in ("qq", "ss") else first_letter(request)

    watch = Ears()
    with serving(mostly) as server:
        (result,) = evaluate(spec, "served", endpoint=server.url, concurrency=1, callbacks=(watch,)).values()
    assert (result["n"], result["abstained"], result["solved_rate"]) == (6, 2, 1.0)
    _, said = watch.said  # the first: of few rows
    assert "2 of 8 completions were not scored" in said and "too rude" in said


def test_only_judges_that_were_asked_meanwhile_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, asked = Usage(verdicts=3, requests=3), Usage(verdicts=5, requests=4)
    monkeypatch.setattr(one_model, "usages", lambda: {"one": earlier, "two": asked})
    (choice,) = one_model.usage_choices(dict.fromkeys(("one", "two"), earlier))
    assert choice.value == "two" and choice.why.startswith("2 verdicts")
