import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import grpo_core.training
from grpo_core.cli import run
from grpo_core.cli.start import main_run
from grpo_core.config import ResolvedConfig, RunConfig, TrainerConfig
from grpo_core.config import trainer as trainer_settings
from grpo_core.config.keys import keys
from grpo_core.training import start as real_start
from grpo_core.training.warm_start_options import WarmStartOptions
from grpo_sdk.callbacks import Callback, ResolvedDefault, RunInfo, StepRecord
from grpo_sdk.cli import main as entry

Capture = pytest.CaptureFixture[str]

TASK = """
from grpo_sdk import Row, Task, reward
right = reward()(lambda answer, row: float(answer == row.gold))
one = Task("one", lambda config: [Row(id="1", gold="a")], lambda row: "p", lambda text, row: text, (right,),
           row=Row, default_model="owner/model")
"""
RESULT = {
    **{"solved_rate": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 10, "mean_reward": 0.5},
    **{"split": "test", "temperature": 0.0},
}


class FakeTrainer:
    """Stands where the trainer is: remembers what it was asked, and tells the callbacks of a run."""

    def __init__(self, run_dir: Path, *, interrupted: bool = False) -> None:
        self.run_dir, self.interrupted = run_dir, interrupted
        self.configs: list[RunConfig] = []
        self.choices: Sequence[ResolvedDefault] = ()

    def __call__(self, config: ResolvedConfig, callbacks: Sequence[Callback]) -> SimpleNamespace:
        inspect.signature(real_start.train).bind(config, callbacks=callbacks)  # or a fake proves nothing
        self.configs.append(config.config)
        self.choices = choices = config.choices
        summary = {"tasks": {"rhyme.one": {"initial": RESULT}}, "steps": 2, "interrupted": self.interrupted}
        for callback in callbacks:
            callback.on_run_start(RunInfo(self.run_dir, {"rhyme.one": (1, 1)}, choices, 2))
            callback.on_step(StepRecord(1, {"reward": 0.5}))
            callback.on_run_end(summary, self.run_dir)
        return SimpleNamespace(run_dir=self.run_dir, summary=summary, interrupted=self.interrupted)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTrainer:
    """A folder with a task of one's own, and a trainer that only remembers."""
    (tmp_path / "rhyme.py").write_text(TASK)
    monkeypatch.setenv("GRPO_TASK", "./rhyme.py:one")
    fake = FakeTrainer(Path("training_runs/run_1"))
    monkeypatch.setattr(run, "train", fake)
    return fake


def test_options_and_overrides_reach_the_trainer(trainer: FakeTrainer) -> None:
    options = "--max-steps 7 --max-minutes 1.5 --seed 3 --output-dir out --ckpt ./ada --model owner/folder"
    overrides = "trainer.num_generations=16 trainer.kl=k2"
    assert main_run([*options.split(), *overrides.split()]) == 0
    (config,) = trainer.configs
    assert (config.trainer.max_steps, config.trainer.max_minutes, config.seed, config.output_dir) == (7, 1.5, 3, "out")
    assert (config.adapter, config.model) == ("./ada", "owner/folder")
    assert (config.trainer.num_generations, config.trainer.kl) == (16, "k2")
    assert config.task == "./rhyme.py:one", "from the environment"


def test_what_was_chosen_is_handed_on(trainer: FakeTrainer) -> None:
    assert entry.main(["run"]) == 0
    assert trainer.configs[0].model == "owner/model"
    assert trainer.configs[0].trainer.scale_rewards == "none"
    assert {choice.what for choice in trainer.choices} == {"model", "trainer.scale_rewards", "trainer.num_train_epochs"}


def test_json_is_alone_on_stdout(trainer: FakeTrainer, capsys: Capture) -> None:
    assert main_run(["--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks"]["rhyme.one"]["initial"]["solved_rate"] == 0.5
    assert captured.err.startswith("grpo-run  task rhyme.one (1 train / 1 held-out rows)")
    assert "\nstep      1/2" in captured.err
    assert "\x1b" not in captured.err


def test_progress_is_on_stderr_and_an_interrupted_run_exits_with_130(trainer: FakeTrainer, capsys: Capture) -> None:
    main_run([])
    captured = capsys.readouterr()
    assert captured.out == "" and "saved     training_runs/run_1" in captured.err
    assert main_run(["--quiet"]) == 0
    assert capsys.readouterr() == ("training_runs/run_1\n", "")
    trainer.interrupted = True
    assert main_run([]) == 130
    err = capsys.readouterr().err
    assert "stopped   after step 2 of 2" in err and "saved" in err


def test_show_config_prints_every_setting_with_its_source(
    trainer: FakeTrainer, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_text("trainer:\n  beta: 0.1\n")
    (tmp_path / ".env").write_text("GRPO_EVAL__SIZE=64\n")
    monkeypatch.setenv("GRPO_TRAINER__LOSS_ARGS__DELTA", "0.5")
    arguments = ["--show-config", "--config", "run.yaml", "--seed", "5"]
    assert main_run([*arguments, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed) == {*keys(), "trainer.loss_args.delta"}
    sources = {
        "seed": (5, "command line"), "task": ("./rhyme.py:one", "environment GRPO_TASK"),
        "eval.size": (64, ".env GRPO_EVAL__SIZE"), "trainer.beta": (0.1, "run.yaml:2"),
        "trainer.loss_args.delta": (0.5, "environment GRPO_TRAINER__LOSS_ARGS__DELTA"),
        "engine.max_batch_tokens": (65536, "default"),
    }  # fmt: skip
    assert {name: tuple(listed[name].values()) for name in sources} == sources
    assert listed["model"]["value"] == "owner/model"
    assert listed["model"]["source"].startswith("chosen: no --model given")
    assert main_run(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(listed)[: len(lines) - 1]
    assert any(line.split() == ["trainer.beta", "0.1", "run.yaml:2"] for line in lines)
    assert trainer.configs == [], "nothing is trained"


def test_settings_are_validated_once(trainer: FakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.yaml").write_text("recipe: gspo\ntrainer:\n  beta: 0.1\n")
    validated: list[TrainerConfig] = []
    check = trainer_settings._check_names
    monkeypatch.setattr(trainer_settings, "_check_names", lambda config: (validated.append(config), check(config)))
    assert main_run(["--config", "run.yaml", "--model", "tiny", "--preset", "baseline", "num_generations=4"]) == 0
    assert len(validated) == len(trainer.configs) == 1


def test_warm_start_passes_everything_on(
    trainer: FakeTrainer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def fake(task: str, out: str, **options: Any) -> dict[str, Any]:
        asked.update(options, task=task, out=out)
        return {"evaluation": {"rhyme.one": RESULT}, "steps": 5, "interrupted": False}

    monkeypatch.setattr(grpo_core.training, "warm_start", SimpleNamespace(warm_start=fake), raising=False)
    monkeypatch.setattr("sys.argv", ["/usr/bin/grpo", "warm-start", "--task", "./rhyme.py:one"])
    words = "warm-start --task ./rhyme.py:one --out warm --preset tiny --max-steps 5 --vocab-size 300"
    arguments = words.split()
    assert entry.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "warm"
    del asked["callbacks"]
    given = {"preset": "tiny", "max_steps": 5, "vocab_size": 300, "command": "grpo warm-start --task ./rhyme.py:one"}
    assert (asked.pop("task"), asked.pop("out"), asked.keys() >= given.keys()) == ("./rhyme.py:one", "warm", True)
    assert WarmStartOptions(**asked) == WarmStartOptions(**given), "the defaults are those of Python"
    assert entry.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 5
