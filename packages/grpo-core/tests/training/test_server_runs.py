"""Runs that sample from a server: a stand-in for vLLM's, which samples with our own engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from heard import Heard
from server_engines import sent_versions
from vllm_server import FakeVLLM, native_answers, serving

from grpo_core import evaluate, resume
from grpo_core.config import EngineConfig, RunConfig, TrainerConfig, resolve
from grpo_core.evaluation.one_model import Candidate, evaluate_as
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.training.result import RunResult
from grpo_sdk.errors import DataError, EngineError, UserError

NAMES = ("step", "reward", "grad_norm", "sampler_mismatch")
NOBODY = "http://127.0.0.1:9"


@contextmanager
def server(max_model_len: int | None = None) -> Iterator[FakeVLLM]:
    fake = native_answers(byte_tokenizer())
    if max_model_len is not None:
        fake.max_model_len = max_model_len
    with serving(fake):
        yield fake


def at(fake: FakeVLLM, **options: Any) -> dict[str, Any]:
    return {"name": "vllm", "url": fake.url, **options}


Run = Callable[..., RunResult]


@pytest.fixture(scope="module")
def run(trained: Run) -> Run:
    """Trains a short run that samples from an engine."""

    def made(engine: dict[str, Any], task: str = "letters", callbacks: Any = (), **settings: Any) -> RunResult:
        sizes = {"prompts_per_step": 2, "save_every": 1, "eval": {"size": 4}, "engine": engine}
        return trained(f"letters.py:{task}", callbacks, **{**sizes, **settings})

    return made


def numbers(result: RunResult, *names: str) -> list[list[Any]]:
    return [[step[name] for name in names] for step in result.metrics]


@pytest.fixture(scope="module")
def straight(run: Run) -> tuple[RunResult, FakeVLLM, Heard]:
    """A run that was not stopped, its server and what it said."""
    with server() as fake:
        return run(at(fake), callbacks=[heard := Heard()]), fake, heard


def test_a_run_samples_with_the_weights_of_each_step(straight: tuple[RunResult, FakeVLLM, Heard]) -> None:
    result, fake, heard = straight
    assert len(fake.loaded) == 3  # before the first step, and after each: the evaluations add none
    assert sent_versions(fake) == [0, 1, 2]
    assert not Path(fake.folder).parent.exists()
    for step in result.metrics:
        assert step["sampler_mismatch"] < 1e-4
        assert step["rollout_weight"] == pytest.approx(1, abs=1e-4)
    assert heard.choices["trainer.rollout_correction"].value == "token_truncate"
    why = heard.choices["engine"].why
    assert why.startswith(f"the vLLM server at {fake.url}; weights are sent by file after every update; 512 tokens")


def test_rows_beyond_the_servers_context_are_left_out(run: Run) -> None:
    """The model's own context is longer, so they are known only when the server has answered."""
    with server(max_model_len=9) as fake:
        run(at(fake), "repeats", [heard := Heard()])
    assert "5 of 8 rows; 3 dropped for a long prompt (longest: 8 tokens)" in heard.choices["rows"].value
    assert heard.choices["rows"].why == "longer than 5 tokens: the context 9 less 4 for the completion"
    assert max(len(body["prompt"]) for body in fake.completions()) == 5
    with (
        server(max_model_len=5) as fake,
        pytest.raises(DataError, match=r"limit is 1 tokens: the context 5 less 4.*max_completion_length=3 or less"),
    ):
        run(at(fake))
    assert not fake.completions()


def test_a_server_that_dies_ends_the_run_in_one_line_and_another_goes_on_from_the_checkpoint(
    straight: tuple[RunResult, FakeVLLM, Heard], run: Run, tmp_path: Path
) -> None:
    with server() as gone:
        answer = gone.answer

        def dying(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            if len(gone.loaded) == 2 and path == "/v1/completions":  # those of the second step
                raise ConnectionAbortedError
            return answer(path, body)

        gone.answer = dying  # type: ignore[method-assign]
        with pytest.raises(EngineError, match=r"^the vLLM server at \S+ is gone or [^\n]+$") as caught:
            run(at(gone), output_dir=str(tmp_path))
        assert caught.value.exit_code == 1
    (left,) = tmp_path.glob("run_*")
    with pytest.raises(EngineError, match=f"vLLM server at {gone.url}"):
        resume(left, progress=False)
    with server() as other:
        settings = left / "config.yaml"
        settings.write_text(settings.read_text().replace(gone.url, other.url))
        resumed = resume(left, progress=False)
        assert sent_versions(other) == [1, 2]
    assert numbers(resumed, *NAMES) == numbers(straight[0], *NAMES)


def test_the_server_samples_where_trl_takes_the_steps(straight: tuple[RunResult, FakeVLLM, Heard], run: Run) -> None:
    pytest.importorskip("trl")
    with server() as fake:
        result = run(at(fake), backend="trl")
    assert len(fake.loaded) == 3
    assert numbers(result, "reward") == numbers(straight[0], "reward")
    for own, native in zip(numbers(result, "grad_norm"), numbers(straight[0], "grad_norm"), strict=True):
        assert own == pytest.approx(native, rel=1e-3)


def test_a_fallback_is_taken_only_where_it_is_asked_for_and_said(run: Run) -> None:
    nobody = {"name": "vllm", "url": NOBODY}
    with pytest.raises(EngineError, match=r"does not answer\. Is it up"):
        run(nobody)
    run({**nobody, "fallback": "native"}, callbacks=[heard := Heard()], max_steps=1)
    assert heard.choices["engine"].value == "native"
    assert "does not answer" in heard.choices["engine"].why


@pytest.mark.parametrize(("engine", "options", "correction"), [
    ("vllm", {}, "token_truncate"),
    ("vllm", {"rollout_correction": "none"}, "none"),
    ("native", {}, "none"),
])  # fmt: skip
def test_the_correction_is_on_unless_a_user_switches_it_off(
    engine: str, options: dict[str, Any], correction: str
) -> None:
    made = RunConfig(task="core.qa", model="tiny", engine=EngineConfig(name=engine), trainer=TrainerConfig(**options))
    assert resolve(made).config.trainer.rollout_correction == correction


@pytest.mark.parametrize(("options", "message"), [
    ({"url": "http://x"}, r"engine\.url has no effect: engine\.name=native"),
    ({"name": "vllm", "args": {"tranfser": "file"}}, "no argument 'tranfser'. Did you mean 'transfer'"),
    ({"name": "vlm"}, "no engine 'vlm'. Did you mean 'vllm'"),
    ({"name": "vllm", "url": "http://x", "args": {"url": "http://y"}}, r"engine\.args\.url is engine\.url"),
])  # fmt: skip
def test_settings_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**options)


def test_an_impossible_argument_is_refused_before_the_start(run: Run) -> None:
    with pytest.raises(UserError, match=r"engine\.args\.timeout_s: .*greater than 0 \(given 0\)"):
        run({"name": "vllm", "url": NOBODY, "args": {"timeout_s": 0}, "fallback": "native"})


def test_an_evaluation_samples_from_the_server(folder: Path) -> None:
    task, model = f"{Path(__file__).parent / 'programs' / 'letters.py'}:letters", str(folder / "model")
    with server() as fake:
        options = ModelOptions(device="cpu", engine=EngineConfig(**at(fake)))
        (own,) = evaluate_as(task, Candidate(model=model), {}, EvaluationSettings(batch_size=4), options).values()
        assert fake.completions()
    (native,) = evaluate(task, model, device="cpu").values()
    assert own["mean_reward"] == native["mean_reward"]
