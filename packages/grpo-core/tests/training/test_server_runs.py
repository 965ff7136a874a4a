"""Runs that sample from a server: a stand-in for vLLM's, which samples with our own engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from server_engines import sent_versions
from vllm_server import FakeVLLM, native_answers, serving

from grpo_core import evaluate, train
from grpo_core.callbacks import Callback, ResolvedDefault, RunInfo
from grpo_core.config import EngineConfig, EvalConfig, LoraConfig, RunConfig, TrainerConfig, resolve
from grpo_core.errors import DataError, EngineError, UserError
from grpo_core.policy.fresh import fresh_model
from grpo_core.training.resume import resume

TASK = f"{Path(__file__).parents[1] / 'support' / 'letter_tasks.py'}:letters"
TOKENIZER: Any = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vllm") / "model"
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def config(folder: Path, out: Path, engine: EngineConfig, **options: Any) -> RunConfig:
    trainer = {"max_steps": 2, "prompts_per_step": 2, "num_generations": 4, "max_completion_length": 4}
    return RunConfig(
        task=TASK,
        model=str(folder),
        output_dir=str(out),
        device="cpu",
        engine=engine,
        trainer=TrainerConfig(**{**trainer, "save_every": 1, **options.pop("trainer", {})}),
        eval=EvalConfig(size=4),
        **options,
    )


def at(fake: FakeVLLM, **options: Any) -> EngineConfig:
    return EngineConfig(name="vllm", url=fake.url, **options)


def steps(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs" / "train_log.jsonl").read_text().splitlines()]


class Choices(Callback):
    def __init__(self) -> None:
        self.seen: dict[str, ResolvedDefault] = {}

    def on_run_start(self, info: RunInfo) -> None:
        self.seen |= {choice.what: choice for choice in info.choices}


def numbers(run: Path, *names: str) -> list[Sequence[Any]]:
    return [[line[name] for name in names] for line in steps(run)]


@dataclass(frozen=True)
class Straight:
    """A run that was not stopped."""

    run: Path
    fake: FakeVLLM
    choices: Choices


@pytest.fixture(scope="module")
def straight(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Straight:
    choices = Choices()
    with serving(native_answers(fresh_model("tiny", 0)[1])) as fake:
        out = tmp_path_factory.mktemp("straight")
        return Straight(train(config(folder, out, at(fake)), (choices,)).run_dir, fake, choices)


def test_a_run_samples_from_the_server_with_the_weights_of_each_step(straight: Straight) -> None:
    fake, lines = straight.fake, steps(straight.run)
    assert len(fake.loaded) == 3  # before the first step, and after each: the evaluations add none
    assert sent_versions(fake) == [0, 1, 2]
    assert not Path(fake.folder).parent.exists()
    assert all(line["sampler_mismatch"] < 1e-4 for line in lines)
    assert all(line["rollout_weight"] == pytest.approx(1, abs=1e-4) for line in lines)
    assert straight.choices.seen["trainer.rollout_correction"].value == "token_truncate"
    why = straight.choices.seen["engine"].why
    assert why.startswith(f"the vLLM server at {fake.url}; weights are sent by file after every update; 512 tokens")


def test_rows_beyond_the_servers_context_are_left_out(folder: Path, tmp_path: Path) -> None:
    """The model's own context is longer, so they are known only when the server has answered."""
    choices, fake = Choices(), native_answers(fresh_model("tiny", 0)[1])
    fake.max_model_len = 9
    task = TASK.replace(":letters", ":repeats")
    with serving(fake):
        train(config(folder, tmp_path, at(fake)).model_copy(update={"task": task}), (choices,))
    assert (
        choices.seen["rows"].value
        == "letter_tasks.repeats: 5 of 8 rows; 3 dropped for a long prompt (longest: 8 tokens)"
    )
    assert choices.seen["rows"].why == "longer than 5 tokens: the context 9 less 4 for the completion"
    assert max(len(body["prompt"]) for body in fake.completions()) == 5


def test_a_servers_context_that_no_row_fits_ends_the_run(folder: Path, tmp_path: Path) -> None:
    fake = native_answers(fresh_model("tiny", 0)[1])
    fake.max_model_len = 5
    with serving(fake), pytest.raises(DataError, match=r"The limit is 1 tokens: the context 5 less 4") as raised:
        train(config(folder, tmp_path, at(fake)))
    assert "trainer.max_completion_length=3 or less" in str(raised.value) and not fake.completions()


def test_a_run_that_was_stopped_goes_on(straight: Straight, folder: Path, tmp_path: Path) -> None:
    with serving(native_answers(fresh_model("tiny", 0)[1])) as fake:
        stopped = train(config(folder, tmp_path, at(fake), trainer={"stop_after": 1}))
        assert stopped.interrupted
        resume(stopped.run_dir)
        assert fake.version.endswith("-2")
    named = ("step", "reward", "grad_norm", "sampler_mismatch")
    assert numbers(stopped.run_dir, *named) == numbers(straight.run, *named)


def test_a_run_goes_on_with_another_server(straight: Straight, folder: Path, tmp_path: Path) -> None:
    with serving(native_answers(fresh_model("tiny", 0)[1])) as gone:
        run = train(config(folder, tmp_path, at(gone), trainer={"stop_after": 1})).run_dir
    with pytest.raises(EngineError, match=f"vLLM server at {gone.url}"):
        resume(run)
    with serving(native_answers(fresh_model("tiny", 0)[1])) as other:
        settings = run / "config.yaml"
        settings.write_text(settings.read_text().replace(gone.url, other.url))
        resume(run)
        assert sent_versions(other) == [1, 2]
    named = ("step", "reward", "grad_norm", "sampler_mismatch")
    assert numbers(run, *named) == numbers(straight.run, *named)


def test_a_server_that_dies_ends_the_run_in_one_line_and_the_checkpoint_stands(folder: Path, tmp_path: Path) -> None:
    fake = native_answers(fresh_model("tiny", 0)[1])
    answer = fake.answer

    def dying(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if len(fake.loaded) == 2 and path == "/v1/completions":  # those of the second step
            raise ConnectionAbortedError
        return answer(path, body)

    fake.answer = dying  # type: ignore[method-assign]
    with serving(fake):
        with pytest.raises(EngineError, match=r"^the vLLM server at \S+ is gone or [^\n]+$") as caught:
            train(config(folder, tmp_path / "runs", at(fake), trainer={"max_steps": 3}))
        assert caught.value.exit_code == 1
        (run,) = (tmp_path / "runs").iterdir()
        assert [line["step"] for line in steps(run)] == [1]
        fake.answer = answer  # type: ignore[method-assign]
        assert not resume(run).interrupted
    assert [line["step"] for line in steps(run)] == [1, 2, 3]


def test_a_batch_is_sampled_by_the_server_while_the_one_before_trains(folder: Path, tmp_path: Path) -> None:
    with serving(native_answers(fresh_model("tiny", 0)[1])) as fake:
        run = train(config(folder, tmp_path, at(fake), trainer={"max_steps": 3, "off_policy_steps": 1})).run_dir
    assert [line["step"] for line in steps(run)] == [1, 2, 3]
    assert steps(run)[0]["sampler_mismatch"] < 1e-4  # its own weights; later ones are a step old
    assert steps(run)[2]["sampler_mismatch"] > 1e-4
    assert all("overlap/trainer_idle" in line for line in steps(run)[:2])


def test_the_server_samples_where_trl_takes_the_steps(straight: Straight, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    with serving(native_answers(fresh_model("tiny", 0)[1])) as fake:
        run = train(config(folder, tmp_path, at(fake), trainer={"backend": "trl"})).run_dir
        assert len(fake.loaded) == 3
    assert numbers(run, "reward") == numbers(straight.run, "reward")
    for own, native in zip(numbers(run, "grad_norm"), numbers(straight.run, "grad_norm"), strict=True):
        assert own == pytest.approx(native, rel=1e-3)


def test_an_adapter_is_trained_with_a_server_that_has_the_base(folder: Path, tmp_path: Path) -> None:
    with serving(FakeVLLM(lora=True)) as fake:
        lora = LoraConfig(enabled=True, r=4)
        run = train(config(folder, tmp_path / "runs", at(fake), lora=lora)).run_dir
        assert "/collective_rpc" not in fake.paths()
        assert [body["lora_name"][-2:] for path, body in fake.seen if path == "/v1/load_lora_adapter"] == [
            "-0",
            "-1",
            "-2",
        ]
    assert len(steps(run)) == 2


def test_a_fallback_is_taken_only_where_it_is_asked_for_and_said(folder: Path, tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    with pytest.raises(EngineError, match=r"does not answer\. Is it up"):
        train(config(folder, tmp_path / "none", EngineConfig(name="vllm", url=nobody)))
    choices = Choices()
    engine = EngineConfig(name="vllm", url=nobody, fallback="native")
    train(config(folder, tmp_path / "native", engine, trainer={"max_steps": 1}), (choices,))
    assert choices.seen["engine"].value == "native"
    assert "does not answer" in choices.seen["engine"].why


def test_the_correction_is_on_by_default_and_the_users_to_switch_off() -> None:
    def correction(**options: Any) -> str:
        trainer = TrainerConfig(**options)
        config = RunConfig(task="core.qa", model="tiny", engine=EngineConfig(name="vllm"), trainer=trainer)
        return resolve(config).config.trainer.rollout_correction

    assert correction() == "token_truncate"
    assert correction(rollout_correction="none") == "none"
    assert correction(rollout_correction="sequence_mask") == "sequence_mask"
    native = RunConfig(task="core.qa", model="tiny")
    assert resolve(native).config.trainer.rollout_correction == "none"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://x"}, r"engine\.url has no effect: engine\.name=native"),
        ({"name": "vllm", "args": {"tranfser": "file"}}, "no argument 'tranfser'. Did you mean 'transfer'"),
        ({"name": "vllm", "fallback": "nativ"}, "no engine 'nativ'. Did you mean 'native'"),
        ({"name": "vlm"}, "no engine 'vlm'. Did you mean 'vllm'"),
        ({"name": "vllm", "url": "http://x", "args": {"url": "http://y"}}, r"engine\.args\.url is engine\.url"),
    ],
)
def test_settings_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout_s": 0}, r"timeout_s: .*greater than 0 \(given 0\)"),
        ({"start_timeout_s": -5}, r"start_timeout_s: .*greater than 0"),
        ({"tensor_parallel_size": 0}, r"tensor_parallel_size: .*greater than or equal to 1"),
        ({"max_model_len": 0}, r"max_model_len: .*greater than or equal to 1"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_a_server_is_asked(
    arguments: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    engine = EngineConfig(name="vllm", url="http://127.0.0.1:9", args=arguments, fallback="native")
    with pytest.raises(UserError, match=rf"engine\.args\.{message}"):
        train(config(folder, tmp_path, engine))


def test_an_argument_of_a_wrong_type_is_refused_before_a_server_is_asked(folder: Path, tmp_path: Path) -> None:
    engine = EngineConfig(name="vllm", url="http://127.0.0.1:9", args={"transfer": "pigeon"}, fallback="native")
    with pytest.raises(UserError, match=r"engine\.args\.transfer: .*'file'.* \(given 'pigeon'\)"):
        train(config(folder, tmp_path, engine))


def test_an_evaluation_samples_from_the_server(folder: Path) -> None:
    from grpo_core.evaluation.evaluate import Candidate, evaluate_as
    from grpo_core.evaluation.settings import EvaluationSettings
    from grpo_core.evaluation.setup import ModelOptions

    settings = EvaluationSettings(batch_size=4)
    with serving(native_answers(fresh_model("tiny", 0)[1])) as fake:
        options = ModelOptions(device="cpu", engine=at(fake))
        (own,) = evaluate_as(TASK, Candidate(model=str(folder)), {}, settings, options).values()
        assert fake.completions()
    (native,) = evaluate(TASK, str(folder), device="cpu").values()
    assert own["mean_reward"] == native["mean_reward"]
