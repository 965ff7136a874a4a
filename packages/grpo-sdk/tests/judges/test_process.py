from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from judge_processes import small_classifier

from grpo_sdk.judges import LocalModel, classifier, rubric
from grpo_sdk.judges.process import ProcessBackend
from grpo_sdk.judges.service import JudgeService, Verdict
from grpo_sdk.killable import Outcome
from grpo_sdk.plugins.loading import resolve
from grpo_sdk.task.judging import JudgedReward, JudgeQuestion


@pytest.fixture
def ask(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., list[Verdict]]:
    """Asks a judge, in a process that ends with the test."""

    def ask(judge: JudgedReward, *texts: str, backend: ProcessBackend | None = None, prompt: str = "") -> list[Verdict]:
        service = JudgeService(judge.model, tmp_path)
        service._backend = backend
        request.addfinalizer(lambda: service._backend and service._backend.close())
        return [
            future.result(60) for future in [service.submit(judge, JudgeQuestion(prompt, (text,))) for text in texts]
        ]

    return ask


def counting(**options: Any) -> tuple[JudgedReward, ProcessBackend]:
    model = LocalModel("counting", **{"batch_size": 4, "cache": False, **options})
    return rubric("Many.", model=model), ProcessBackend(model, "judge_processes:make", ("",))


def test_calls_are_answered_in_batches(ask: Callable[..., list[Verdict]]) -> None:
    judge, backend = counting()

    values = [verdict.value or 0 for verdict in ask(judge, *map(str, range(40)), backend=backend)]
    assert 0.1 < max(values) <= 0.4, "the share of ten that each batch was"


@pytest.mark.parametrize(
    ("text", "why"), [("die", "its worker exited with status 3, twice"), ("hang", "no answer within 1 s")]
)
def test_a_process_that_hangs_or_dies_is_made_again(ask: Callable[..., list[Verdict]], text: str, why: str) -> None:
    judge, backend = counting(timeout_s=1.0, batch_size=1)

    bad, good = ask(judge, text, "fine", backend=backend)
    assert bad.value is None and why in bad.why and not bad.is_refused
    assert good.value == 0.1


def test_a_batch_that_cannot_be_sent_has_no_verdict_and_no_one_waits(ask, monkeypatch):
    monkeypatch.setattr("grpo_sdk.killable.pool.MAX_FRAME_BYTES", 10_000)
    judge, backend = counting(batch_size=1)

    bad, good = ask(judge, "x" * 10_000, "fine", backend=backend)
    assert bad.value is None and "counting in a process of its own: " in bad.why and "is longer than 10000" in bad.why
    assert good.value == 0.1


def test_a_model_that_cannot_be_loaded_is_the_users_mistake(ask: Callable[..., list[Verdict]], tmp_path: Path) -> None:
    [verdict] = ask(rubric("Many.", model=LocalModel(str(tmp_path / "nothing"))), "one")

    assert verdict.is_refused and "nothing" in verdict.why


def test_verdicts_of_a_local_model_are_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for weights, cached in (("one", 0), (None, 1), ("another", 0)):
        if weights is not None:
            (folder / "model.safetensors").write_text(weights)
        model = LocalModel(str(folder))
        service = JudgeService(model, tmp_path)
        service._backend = ProcessBackend(model, "judge_processes:make", ("",))
        assert service.submit(rubric("Many.", model=model), JudgeQuestion("", ("a",))).result(60).value == 0.1
        service._backend.close()
        assert service.usage.cached == cached
    assert LocalModel("tiny").files() == ()


class InProcess:
    """A pool whose handler is called here, where torch is loaded already."""

    def __init__(self, target: str, args: tuple[Any, ...], **options: Any) -> None:
        self.handle = resolve(target)(*args)

    def submit(self, payload: bytes, timeout_s: float) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        future.set_result(Outcome("ok", self.handle(payload)))
        return future

    def close(self) -> None: ...


def test_a_classifier_gives_the_probability_of_a_label(ask, tmp_path, monkeypatch):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    monkeypatch.setattr("grpo_sdk.judges.process.KillablePool", InProcess)
    folder = small_classifier(tmp_path / "model", ("rude", "polite"))
    judge = classifier(folder, label="polite", device="cpu")
    texts = ["please", "go away", "please please go"]
    values = [verdict.value for verdict in ask(judge, *texts, prompt="go")]

    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = [model(**tokenizer("go", text, return_tensors="pt")).logits[0] for text in texts]
    assert values == pytest.approx([float(torch.softmax(each, -1)[1]) for each in logits], abs=1e-5)
    assert len({round(value or 0, 3) for value in values}) == 3
