import errno
import json
import shutil
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from heard import Heard
from reservations import reserved_sizes
from safetensors.torch import load_file
from transformers import LlamaModel

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16
from grpo_core.policy.device import EMULATED
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.load import load_policy
from grpo_core.policy.memory import OutOfMemoryError
from grpo_core.training import model_folder, supervised
from grpo_core.training.model_folder import SAVE_AFTER_S, ModelFolder
from grpo_core.training.muon import Float32Muon, MuonAndAdamW
from grpo_core.training.warm_start import RECORD, warm_start
from grpo_sdk.cli.main import main
from grpo_sdk.display.progress import Waiting
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.plugins.tasks import load_task

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets

PROGRAM = Path(__file__).parent / "programs" / "golds.py"
LETTERS = f"{PROGRAM}:letters"
SHORT: dict[str, Any] = {"preset": "tiny", "max_steps": 2, "batch_size": 8, "eval_size": 2, "device": "cpu"}
LEARNING: dict[str, Any] = {**SHORT, "max_steps": 30, "learning_rate": 3e-3, "eval_size": 8}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_new_model_learns_the_golds_and_is_written_with_its_record(tmp_path: Path, optimizer: str) -> None:
    out = tmp_path / "out"
    record = warm_start(LETTERS, out, optimizer=optimizer, command="grpo warm-start …", **LEARNING)
    assert record["evaluation"]["golds.letters"]["solved_rate"] >= 0.5
    assert (record["seed"], record["command"], record["optimizer"]) == (0, "grpo warm-start …", optimizer)
    assert read_record(out) == record
    assert list(record["loss"]) == ["10", "20", "30"] and 0 < record["loss"]["30"] < 0.5 * record["loss"]["10"]
    assert load_policy(str(out), device="cpu").tokenizer.eos_token == "<|end|>"


def warnings(heard: Heard) -> list[str]:
    return [said for said in heard.warnings if "held-out rows tell" not in said]  # they are few here


def test_it_ends_when_enough_is_solved_and_says_when_it_is_not(tmp_path: Path) -> None:
    options = {**LEARNING, "until": 0.5, "callbacks": [heard := Heard()]}
    record = warm_start(LETTERS, tmp_path / "a", **{**options, "max_steps": 150})
    rates = record["sampled_solved_rate"]
    expected = [25]  # every 25 steps, and every 10 once a quarter of the target is reached
    while expected[-1] < record["steps"]:
        is_close = max(rates[str(step)] for step in expected) >= 0.5 / 4
        every = 10 if is_close else 25
        expected.append((expected[-1] // every + 1) * every)
    assert record["steps"] < 150 and list(rates) == list(map(str, expected))
    assert list(rates.values())[-1] >= 0.5 > max([0.0, *list(rates.values())[:-1]])
    assert record["recommended"]["trainer.learning_rate"] == 1.2e-4 and warnings(heard) == []
    warm_start(LETTERS, tmp_path / "b", **{**options, "max_steps": 2})
    assert warnings(heard)[0].startswith("--until 0.5 was not reached in 2 steps: 0.00 of the sampled completions")


def test_an_interrupted_one_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_at_3(self: Waiting, what: str, done: int, total: int) -> None:
        if (what.startswith("supervised"), done) == (True, 3):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Waiting, "on_progress", raise_at_3)
    out = tmp_path / "out"
    words = ["--task", LETTERS, "--preset", "tiny", "--out", str(out), "--batch-size", "2", "--max-steps", "100"]
    assert main(["warm-start", *words, "--device", "cpu"]) == ExitCode.INTERRUPTED
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "stopping: the model is saved first" in printed.err
    assert f"stopped after 3 of 100 steps, and not evaluated; go on from it: --model {out}" in printed.err
    record = read_record(out)
    assert (record["steps"], record["interrupted"], record["evaluation"]) == (3, True, {})
    again = warm_start(LETTERS, tmp_path / "next", **{**SHORT, "preset": None, "model": str(out)})
    assert again["start"]["steps"] == 3 and not again["interrupted"]


def test_weights_are_as_small_as_asked_for_and_examples_beyond_the_context_are_left_out(tmp_path: Path) -> None:
    heard, model = Heard(), {**SHORT, "preset": None, "model": "tiny"}
    record = warm_start(f"{PROGRAM}:beyond", tmp_path / "half", save_dtype="float16", callbacks=[heard], **model)
    assert {each.dtype for each in weights_of(tmp_path / "half").values()} == {torch.float16}
    assert record["save_dtype"] == "float16" and load_policy(str(tmp_path / "half"), device="cpu")
    assert record["start"]["command"].startswith("grpo warm-start ")  # of the embedded model
    assert [said for said in heard.warnings if "longer than the model's context (512 tokens)" in said]


def test_demos_that_the_task_would_cut_off_are_warned_of(tmp_path: Path) -> None:
    for limit, expected in ((2, 0), (1, 1)):  # a letter and the end token
        task = replace(load_task(LETTERS).task, max_completion_length=limit)
        warm_start(task, tmp_path / str(limit), callbacks=[heard := Heard()], **SHORT)
        cut_off = f"more tokens than a completion of the task may have ({limit})"
        assert sum(cut_off in said for said in heard.warnings) == expected


def test_half_precision_is_of_the_products_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.training.fine_tuning.emulates_bfloat16", lambda device: True)
    half = warm_start(LETTERS, tmp_path / "half", precision="bfloat16", callbacks=[heard := Heard()], **SHORT)
    assert f"--precision bfloat16: {EMULATED}" in heard.warnings
    whole = warm_start(LETTERS, tmp_path / "whole", **SHORT)
    assert half["loss"] != whole["loss"] and half["loss"]["2"] == pytest.approx(whole["loss"]["2"], rel=0.01)
    assert half["precision"] == "bfloat16"
    assert {each.dtype for each in weights_of(tmp_path / "half").values()} == {torch.float32}


def test_a_new_model_reads_with_a_tokenizer_learned_from_the_demos_and_gets_more_layers(tmp_path: Path) -> None:
    learned, taken, deeper = (tmp_path / name for name in ("learned", "taken", "deeper"))
    warm_start(LETTERS, learned, vocab_size=260, **SHORT)
    warm_start(LETTERS, taken, tokenizer=str(learned), **SHORT)
    record = warm_start(LETTERS, deeper, add_layers=2, **{**SHORT, "preset": None, "model": str(learned)})
    assert (record["add_layers"], "add_layers" in record["start"]) == (2, False)
    for folder, layers in ((learned, 4), (taken, 4), (deeper, 6)):
        policy = load_policy(str(folder), device="cpu")
        assert len(policy.tokenizer("say a:")["input_ids"]) == 4  # "say", two merges; " ", "a" and ":"
        assert policy.model.get_input_embeddings().num_embeddings == 260
        assert policy.model.config.num_hidden_layers == layers


@pytest.mark.parametrize(("task", "options", "message"), [
    ("letters", {"model": "tiny", "preset": "tiny"}, "not both"),
    ("letters", {"model": "tiny", "vocab_size": 300}, "has its tokenizer"),
    ("letters", {"preset": "tiny", "vocab_size": 300, "tokenizer": "tiny"}, "not both"),
    ("letters", {"preset": "tiny", "add_layers": 2}, r"--add-layers 2 is for a --model"),
    ("letters", {"preset": "tiny", "out": PROGRAM}, "it is a file"),
    ("letters", {"preset": "tiny", "out": "/proc/model"}, "nothing can be made in /proc|/proc"),
    ("unseen", {"preset": "tiny"}, "no rows for split 'test'"),
    ("thinks", {"preset": "tiny"}, "end in a prefilled message"),  # which TRL would train otherwise
    (f"letters,{PROGRAM}:chats", {"preset": "tiny"}, r"letters are text and those of .*chats are messages"),
])  # fmt: skip
def test_what_cannot_be_is_refused_at_once(tmp_path: Path, task: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        warm_start(f"{PROGRAM}:{task}", **{"out": tmp_path / "out", **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is reserved here")
def test_room_for_the_model_is_held_while_it_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = reserved_sizes(monkeypatch)
    warm_start(LETTERS, tmp_path / "a", **SHORT)
    written = sum(path.stat().st_size for path in (tmp_path / "a").iterdir() if path.name != RECORD)
    assert written <= reserved[0] <= 1.1 * written
    monkeypatch.setattr("grpo_core.checkpoints.reservation.allocate", lambda file, size: errno.ENOSPC)
    with pytest.raises(UserError, match=r"the model needs 7\.0 MiB in .*b, and .* are free: No space left on device"):
        warm_start(LETTERS, tmp_path / "b", **SHORT)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# The model so far

SMALLEST: dict[str, Any] = {"preset": "tiny", "batch_size": 2, "eval_size": 1, "device": "cpu"}


def read_record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RECORD).read_text())


class Watch(Heard):
    """Notes the steps that the folder's record has when a later step is reported, and copies the folder in step 4."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.steps = folder, list[int | None]()

    def on_progress(self, what: str, done: int, total: int) -> None:
        if what.startswith("supervised"):
            self.steps.append(read_record(self.folder)["steps"] if (self.folder / RECORD).exists() else None)
            if done == 4:
                shutil.copytree(self.folder, self.folder.with_name("killed"))


def test_a_save_that_fails_is_told_and_a_killed_training_goes_on_from_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [0, 0, errno.ENOSPC]
    monkeypatch.setattr("grpo_core.checkpoints.reservation.allocate", lambda file, size: held.pop(0) if held else 0)
    watch, options = Watch(tmp_path / "out"), {"max_steps": 5, "save_every": 2, "save_dtype": "float16"}
    record = warm_start(LETTERS, watch.folder, callbacks=[watch], **options, **SMALLEST)
    assert watch.steps == [None, None, 2, 2, 4]
    (said,) = [each for each in watch.warnings if each.startswith("the model needs")]
    assert said.endswith(f"The training goes on; what {watch.folder} has, stays.")
    assert not record["interrupted"] and len(record["evaluation"]) == 1
    assert read_record(watch.folder) == record
    assert json.loads((watch.folder / "config.json").read_text())["dtype"] == "float16"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "out"]
    killed = tmp_path / "killed"  # as a kill in its fourth step would leave it
    so_far = read_record(killed)
    assert (so_far["steps"], so_far["interrupted"], so_far["evaluation"]) == (2, True, {})
    again = warm_start(LETTERS, tmp_path / "next", max_steps=1, **{**SMALLEST, "preset": None, "model": str(killed)})
    assert again["start"]["steps"] == 2


def test_a_folder_that_was_there_stays_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    record = warm_start(LETTERS, ".", max_steps=2, save_every=1, **SMALLEST)
    assert tmp_path.stat().st_ino == before
    assert read_record(tmp_path) == record and load_policy(".", device="cpu")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_model_is_written_every_ten_minutes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, steps = 0.0, list[int]()
    monkeypatch.setattr(model_folder.time, "monotonic", lambda: now)
    with ExitStack() as resources:
        policy = load_policy(str(folder / "model"), device="cpu")
        written = ModelFolder(tmp_path / "out", policy, 0, None, resources, pytest.fail)
        for step in range(1, 40):
            now = step * SAVE_AFTER_S / 10
            written.after_step(step, partial(dict, steps=step))
            if step >= 10:
                steps.append(read_record(tmp_path / "out")["steps"])
    assert steps == [10] * 10 + [20] * 10 + [30] * 10


# Passes


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of the passes; the first entry is the number of examples above which one runs out of memory."""
    shapes = [(10**9, 0)]
    compute = LlamaModel.forward

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            shapes.append(tuple(kwargs["input_ids"].shape))
            if shapes[-1][0] > shapes[0][0]:
                torch.rand(3)  # the failed pass has drawn numbers
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        return compute(model, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", forward)
    return shapes


def rows(passes: list[tuple[int, int]]) -> list[int]:
    return [rows for rows, _ in passes[1:]]


def test_it_goes_on_in_smaller_passes_when_memory_runs_out(tmp_path: Path, passes: list[tuple[int, int]]) -> None:
    options = {**SHORT, "max_steps": 3, "callbacks": [heard := Heard()]}
    whole = warm_start(LETTERS, tmp_path / "whole", **options)
    assert rows(passes) == 3 * [8] and warnings(heard) == []
    passes[:] = [(2, 0)]
    parted = warm_start(LETTERS, tmp_path / "parted", **options)
    assert rows(passes) == [8, 4, *12 * [2]], "halved to 4 and to 2, and never larger again"
    (warning,) = warnings(heard)
    assert warning.startswith("out of memory in a pass of 8 completions (")
    assert "supervised fine-tuning goes on with at most 4 completions in a pass, halved again" in warning
    assert parted["loss"]["3"] == pytest.approx(whole["loss"]["3"], rel=1e-4)
    theirs = weights_of(tmp_path / "parted")
    for name, tensor in weights_of(tmp_path / "whole").items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5), name
    passes[:] = [(0, 0)]
    with pytest.raises(OutOfMemoryError, match=r"supervised fine-tuning.*one completion.*--precision bfloat16"):
        warm_start(LETTERS, tmp_path / "none", **options)


def test_passes_hold_like_lengths(
    tmp_path: Path, passes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = warm_start(f"{PROGRAM}:growing", tmp_path / "whole", **SHORT)
    monkeypatch.setattr(supervised, "ROWS_ON_CPU", 2)
    parted = warm_start(f"{PROGRAM}:growing", tmp_path / "parted", **SHORT)
    assert rows(passes) == [8, 8, *8 * [2]]
    assert len({width for _, width in passes[3:7]}) == 4, "each pass is as wide as its longest example"
    assert parted["loss"]["2"] == pytest.approx(whole["loss"]["2"], rel=1e-5)


@pytest.mark.slow  # a minute of compiling
@pytest.mark.timeout(600)
def test_compiled_layers_learn_the_same(tmp_path: Path) -> None:
    plain = warm_start(LETTERS, tmp_path / "plain", **SHORT)
    compiled = warm_start(LETTERS, tmp_path / "compiled", compile=True, **SHORT)
    assert compiled["loss"]["2"] == pytest.approx(plain["loss"]["2"], rel=1e-3)
    assert weights_of(tmp_path / "plain").keys() == weights_of(tmp_path / "compiled").keys()


# Muon


def test_muon_in_float32_is_that_of_torch_but_for_rounding() -> None:
    torch.manual_seed(0)
    options: Any = {"lr": 1e-2, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    for shape in ((24, 64), (64, 24), (32, 32)):
        start = torch.randn(shape)
        ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
        optimizers = (Float32Muon([ours], **options), torch.optim.Muon([theirs], **options))
        for _ in range(3):
            gradient = torch.randn(shape)
            for matrix, optimizer in zip((ours, theirs), optimizers, strict=True):
                matrix.grad = gradient.clone()
                optimizer.step()
        moved = (theirs - start).norm()
        assert 0 < (ours - theirs).norm() < 0.02 * moved
        state, other = (each.state_dict() for each in optimizers)
        assert state["param_groups"] == other["param_groups"]
        assert torch.equal(state["state"][0]["momentum_buffer"], other["state"][0]["momentum_buffer"])


def test_muon_trains_the_matrices_of_layers_and_adamw_the_rest_on_one_schedule() -> None:
    muon = Float32Muon if emulates_bfloat16(torch.device("cpu")) else torch.optim.Muon
    model, twin = (fresh_model("tiny", 0)[0] for _ in range(2))
    optimizer = MuonAndAdamW(model, 1e-3)
    halving = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    optimizer.load_state_dict(optimizer.state_dict())  # as accelerate does
    layers = {name for name, each in twin.named_parameters() if each.ndim == 2 and "embed" not in name}
    assert len(layers) == 4 * 7
    parts = [[each for name, each in twin.named_parameters() if (name in layers) is inside] for inside in (True, False)]
    apart = [
        muon(parts[0], lr=5e-4, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(parts[1], lr=5e-4, betas=(0.9, 0.99), weight_decay=0.0),
    ]
    tokens = torch.arange(64)[None]
    for _ in range(2):
        for each in (model, twin):
            each(input_ids=tokens, labels=tokens).loss.backward()
        for stepped in (optimizer, *apart):
            stepped.step()
            stepped.zero_grad()
        halving.step()
    for name, ours in model.named_parameters():
        assert torch.equal(ours, twin.get_parameter(name)), name
        assert ours.grad is None
