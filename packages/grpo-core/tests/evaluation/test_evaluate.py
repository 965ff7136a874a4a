from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation_runs import TASKS
from local_endpoint import Reply, completion, serving

from grpo_core import evaluate
from grpo_core.callbacks import Callback
from grpo_core.engines import openai
from grpo_core.engines.base import StopRequested
from grpo_core.engines.native import NativeEngine
from grpo_core.errors import InfrastructureError, UserError
from grpo_core.evaluation import evaluate as evaluate_module
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_rows
from grpo_core.evaluation.hooks import EvaluationHooks
from grpo_core.evaluation.rows import held_out
from grpo_core.evaluation.sampling import EngineSampler
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import prepare_tasks
from grpo_core.judges.usage import Usage
from grpo_core.policy.fresh import fresh_model
from grpo_core.rollouts.task_scoring import TaskScoring
from grpo_core.scoring.scorer import Scorer

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate")
    for seed, name in enumerate(("model", "other")):
        model, tokenizer = fresh_model("tiny", seed=seed)
        model.save_pretrained(path / name)
        tokenizer.save_pretrained(path / name)
    (path / "tasks.py").write_text(TASKS)
    return path


@pytest.fixture
def spec(folder: Path) -> str:
    return f"{folder}/tasks.py:letters"


class Watch(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.results: list[str] = []
        self.progress: list[tuple[str, int, int]] = []

    def on_progress(self, what: str, done: int, total: int) -> None:
        self.progress.append((what, done, total))

    def on_warning(self, message: str) -> None:
        self.said.append(message)

    def on_evaluation(self, task: str, phase: str, result: Any) -> None:
        self.results.append(task)


def without_timing(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        label: {name: value for name, value in result.items() if name not in ("timing", "base")}
        for label, result in results.items()
    }


def test_the_split_of_the_spec_is_evaluated(folder: Path, spec: str) -> None:
    tasks, _ = prepare_tasks(f"{spec}?split=train", {}, EvaluationSettings(), rows_of_spec=True)
    assert [each.task.config.split for each in tasks.values()] == ["train"]
    tasks, _ = prepare_tasks(f"{spec}?split=train", {}, EvaluationSettings())
    assert [each.task.config.split for each in tasks.values()] == ["test"], "a training is evaluated on other rows"
    with pytest.raises(UserError, match=r"split=train names the split train, and split=test is asked for: give one"):
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


def test_the_size_of_a_training_does_not_bound_its_evaluation(spec: str) -> None:
    tasks, _ = prepare_tasks(f"{spec}?size=3", {}, EvaluationSettings())
    assert [len(each.rows) for each in tasks.values()] == [8]


def test_one_greedy_completion_a_row(folder: Path, spec: str) -> None:
    watch = Watch()
    results = evaluate(spec, str(folder / "model"), callbacks=(watch,))
    (result,) = results.values()
    assert list(results) == watch.results == ["tasks.letters"]
    assert (result["n"], result["completions_per_row"], result["temperature"], result["split"]) == (8, 1, 0.0, "test")
    assert 0 <= result["ci_low"] <= result["solved_rate"] <= result["ci_high"] <= 1
    assert result["surprisal"]["mean"] > 0
    assert set(result["by_difficulty"]) == {"1", "2"}
    assert result["timing"]["tokens_per_s"] > 0
    assert result["timing"]["peak_memory_mib"] > 0
    assert watch.progress[-1] == ("evaluating tasks.letters", 8, 8)
    assert without_timing(results) == without_timing(evaluate(spec, str(folder / "model"), batch_size=3))


def test_several_completions_a_row_with_a_control_and_files(folder: Path, spec: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "n": 4, "temperature": 1.0, "size": 4, "base": str(folder / "other"), "output_dir": tmp_path
    }  # fmt: skip
    results = evaluate(spec, str(folder / "model"), **options)
    (result,) = results.values()
    assert (result["n"], result["completions_per_row"]) == (4, 4)
    assert {"pass@1", "pass@2", "pass@4"} <= set(result)
    assert result["delta"] == pytest.approx(result["solved_rate"] - result["base"]["solved_rate"])
    assert result["base"]["n"] == 4
    own = tmp_path / "model_tasks.letters"
    with gzip.open(own / "model" / "temp1.0_p1.0_r4" / "records.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    assert [(record["row"]["id"], record["sample"]) for record in records[:5]] == [
        ("q", 0), ("q", 1), ("q", 2), ("q", 3), ("r", 0)
    ]  # fmt: skip
    assert set(records[0]["score"]) == {"value", "parts", "valid", "solved", "why", "fault"}
    assert records[0]["surprisal"]["mean"] > 0
    assert len({record["text"] for record in records}) > 4, "samples of a row differ"
    assert (own / "base" / "temp1.0_p1.0_r4" / "metrics.csv").is_file()
    header, base, line = (own / "consolidated_metrics.csv").read_text().splitlines()
    assert (base.split(",")[0], line.split(",")[0]) == ("base", "model")
    assert "delta_ci_low" in header.split(",")
    with pytest.raises(UserError, match=r"holds an evaluation.*--overwrite"):
        evaluate(spec, str(folder / "model"), **options)
    again = evaluate(spec, str(folder / "model"), **options, overwrite=True)
    assert without_timing(again) == without_timing(results)


def test_samples_are_named_by_row_and_number_alone(folder: Path, spec: str) -> None:
    # The first two of four completions are those that n = 2 gives, whoever else is in the batch.
    bound = held_out(evaluate_bound(spec), size=3, split="test")
    model, tokenizer = fresh_model("tiny", seed=0)
    evaluated = EvaluatedModel(EngineSampler(NativeEngine(model.eval(), tokenizer), tokenizer))
    settings = EvaluationSettings(n=2, temperature=1.0, max_completion_length=4)
    with Scorer(bound, workers=1) as scorer:
        scoring = TaskScoring(scorer)
        two, four = (evaluate_rows(bound, bound.rows(), replace(settings, n=n), evaluated, scoring) for n in (2, 4))
        hooks = EvaluationHooks(should_stop=lambda: True)
        with pytest.raises(StopRequested):
            evaluate_rows(bound, bound.rows(), settings, evaluated, scoring, hooks)
    assert [two.texts[2 * row : 2 * row + 2] for row in range(3)] == [
        four.texts[4 * row : 4 * row + 2] for row in range(3)
    ]


def evaluate_bound(spec: str) -> Any:
    from grpo_core.plugins.tasks import load_task

    return load_task(spec)


def test_memory_that_runs_out_changes_no_number(folder: Path, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = evaluate(spec, str(folder / "model"), n=2, temperature=1.0)
    real, sizes = NativeEngine.generate, []

    def generate(self: NativeEngine, requests: Any, sampling: Any) -> Any:
        sizes.append(len(requests))
        if len(requests) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(self, requests, sampling)

    monkeypatch.setattr(NativeEngine, "generate", generate)
    watch = Watch()
    found = evaluate(spec, str(folder / "model"), n=2, temperature=1.0, callbacks=(watch,))
    assert sizes[0] == 16
    assert max(size for size in sizes[1:] if size <= 4) == 4
    assert len([said for said in watch.said if "out of memory" in said]) == 1
    assert without_timing(found) == without_timing(expected)


def test_mistakes_are_found_before_a_model_is_loaded(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import grpo_core.policy.load

    monkeypatch.setattr(grpo_core.policy.load, "load_policy", lambda *given, **options: pytest.fail("loaded"))
    with pytest.raises(UserError, match=r"eval\.n=2 at temperature 0"):
        evaluate(spec, "tiny", n=2, temperature=0)
    with pytest.raises(UserError, match="no task"):
        evaluate("math.arithmetc", "tiny")
    with pytest.raises(UserError, match="no model 'tny'"):
        evaluate(spec, "tny")
    with pytest.raises(UserError, match="no such folder"):
        evaluate(spec, "tiny", base="./nothing")
    with pytest.raises(UserError, match="neither --base nor --adapter"):
        evaluate(spec, "tiny", endpoint="http://localhost:1/v1", base="tiny")


# --- endpoints


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(openai.OpenAIEngine.__init__, "__kwdefaults__", {
        **openai.OpenAIEngine.__init__.__kwdefaults__, "backoff_s": 0.01, "max_retries": 2
    })  # fmt: skip


def first_letter(request: dict[str, Any]) -> Reply:
    return completion(request["prompt"][0])


def test_an_endpoint_is_evaluated_like_a_model(spec: str, tmp_path: Path) -> None:
    watch = Watch()
    with serving(first_letter) as server:
        results = evaluate(
            spec,
            "served",
            endpoint=server.url,
            n=2,
            temperature=0.5,
            top_p=0.9,
            output_dir=tmp_path,
            callbacks=(watch,),
        )
    (result,) = results.values()
    assert (result["solved_rate"], result["n"], result["abstained"], result["pass@2"]) == (1.0, 8, 0, 1.0)
    assert result["mean_length"] == 2
    assert "surprisal" not in result, "an endpoint shows no distribution"
    assert len(server.seen) == 16
    sent = server.seen[0]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == ("served", 0.5, 0.9, 4)
    assert sent["path"] == "/v1/completions"
    assert len({request["seed"] for request in server.seen}) == 16
    assert watch.results == ["tasks.letters"]
    assert watch.progress[-1] == ("evaluating tasks.letters", 16, 16)
    assert KEY not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert server.seen[0]["key"] == f"Bearer {KEY}"


def test_concurrency_is_bounded(spec: str) -> None:
    def slowly(request: dict[str, Any]) -> Reply:
        time.sleep(0.05)
        return first_letter(request)

    with serving(slowly) as server:
        evaluate(spec, "served", endpoint=server.url, concurrency=3)
    assert 2 <= server.most_in_flight <= 3


def test_what_fails_at_first_is_asked_again(spec: str) -> None:
    failed: set[str] = set()

    def once(request: dict[str, Any]) -> Reply:
        if request["prompt"] not in failed:
            failed.add(request["prompt"])
            return 503, b"busy"
        return first_letter(request)

    with serving(once) as server:
        (result,) = evaluate(spec, "served", endpoint=server.url).values()
    assert (result["solved_rate"], len(server.seen)) == (1.0, 16)


def test_a_few_failures_abstain_and_are_told_once(spec: str) -> None:
    def mostly(request: dict[str, Any]) -> Reply:
        return (400, b"too rude") if request["prompt"] in ("qq", "ss") else first_letter(request)

    watch = Watch()
    with serving(mostly) as server:
        (result,) = evaluate(spec, "served", endpoint=server.url, concurrency=1, callbacks=(watch,)).values()
    assert (result["n"], result["abstained"], result["solved_rate"]) == (6, 2, 1.0)
    assert len(watch.said) == 1
    assert "2 of 8 completions were not scored" in watch.said[0]
    assert "too rude" in watch.said[0]


@pytest.mark.parametrize(
    "nonsense", [b"<html>hello</html>", b"{}", b"[1]", b'{"choices": []}', b'{"choices": [{"text": 5}]}', b"\xff\x00"]
)
def test_nonsense_is_one_clear_line(spec: str, nonsense: bytes) -> None:
    with serving(lambda request: (200, nonsense)) as server, pytest.raises(InfrastructureError) as told:
        evaluate(spec, "served", endpoint=server.url)
    assert "\n" not in str(told.value)
    assert "none of 8 completions came" in str(told.value)
    assert "a reply that is no completion" in str(told.value)
    assert KEY not in str(told.value)


def test_a_refused_key_or_model_is_the_users_mistake(spec: str) -> None:
    with serving(lambda request: (404, b"no such model")) as server, pytest.raises(UserError, match="no such model"):
        evaluate(spec, "served", endpoint=server.url)


def test_nobody_there(spec: str) -> None:
    with serving(first_letter) as server:
        url = server.url
    with pytest.raises(InfrastructureError, match=r"none of 8 completions came.*ConnectError"):
        evaluate(spec, "served", endpoint=url)


def test_only_judges_that_were_asked_meanwhile_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, asked = Usage(verdicts=3, requests=3), Usage(verdicts=5, requests=4)
    monkeypatch.setattr(evaluate_module, "usages", lambda: {"one": earlier, "two": asked})
    (choice,) = evaluate_module.usage_choices(
        {"one": Usage(verdicts=3, requests=3), "two": Usage(verdicts=3, requests=3)}
    )
    assert choice.value == "two" and choice.why.startswith("2 verdicts")
