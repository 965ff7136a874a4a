import errno
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from reservations import reserved_sizes
from safetensors.torch import load_file
from transformers import LlamaModel

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16
from grpo_core.callbacks import Callback
from grpo_core.cli.main import main
from grpo_core.display.progress import Waiting
from grpo_core.errors import ExitCode, UserError
from grpo_core.policy.device import EMULATED
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.load import load_policy
from grpo_core.policy.memory import OutOfMemoryError
from grpo_core.training import supervised
from grpo_core.training.muon import Float32Muon, MuonAndAdamW
from grpo_core.training.warm_start import RECORD, warm_start

TASK = """
from collections.abc import Iterable
from grpo_core import Row, Task, reward

class Letter(Row):
    letter: str

def load(config) -> Iterable[Letter]:
    for letter in "abcdefgh":
        yield Letter(id=letter, letter=letter, gold=letter)

def prompt(row):
    return f"say {row.letter}:"

def validate(text, row):
    return text

@reward()
def same(answer, row):
    return float(answer == row.letter)

letters = Task("letters", load, prompt, validate, (same,), max_completion_length=4)
nogold = Task("nogold", lambda config: [Letter(id="a", letter="a")], prompt, validate, (same,), row=Letter)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    (tmp_path / "warm_tasks.py").write_text(TASK)
    return tmp_path / "warm_tasks.py"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_a_new_model_learns_the_golds_and_is_written_with_its_record(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    record = warm_start(
        f"{tasks}:letters", out, preset="tiny", max_steps=30, batch_size=8, learning_rate=3e-3, eval_size=8,
        device="cpu", command="grpo warm-start …",
    )  # fmt: skip
    assert record["evaluation"]["warm_tasks.letters"]["solved_rate"] >= 0.5
    written = json.loads((out / RECORD).read_text())
    assert written["seed"] == 0 and written["command"] == "grpo warm-start …"
    assert list(written["loss"]) == ["10", "20", "30"] and 0 < written["loss"]["30"] < 5
    assert load_policy(str(out), device="cpu").tokenizer.eos_token == "<|end|>"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_it_ends_when_enough_is_solved_and_says_when_it_is_not(tasks: Path, tmp_path: Path) -> None:
    options: Any = {"preset": "tiny", "batch_size": 8, "learning_rate": 3e-3, "eval_size": 8, "device": "cpu"}
    warnings = Warnings()
    record = warm_start(f"{tasks}:letters", tmp_path / "a", max_steps=150, until=0.5, callbacks=[warnings], **options)
    rates = record["sampled_solved_rate"]
    expected = [25]  # every 25 steps, and every 10 once a quarter of the target is reached
    while expected[-1] < record["steps"]:
        is_close = max(rates[str(step)] for step in expected) >= 0.5 / 4
        every = 10 if is_close else 25
        expected.append((expected[-1] // every + 1) * every)
    assert record["steps"] < 150 and list(rates) == list(map(str, expected))
    assert list(rates.values())[-1] >= 0.5 > max([0.0, *list(rates.values())[:-1]])
    assert record["recommended"]["trainer.learning_rate"] == 1.2e-4 and warnings.messages == []
    warm_start(f"{tasks}:letters", tmp_path / "b", max_steps=2, until=0.5, callbacks=[warnings], **options)
    assert warnings.messages[0].startswith("--until 0.5 was not reached in 2 steps: 0.00 of the sampled completions")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_an_interrupted_one_is_written_after_its_step(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_at_3(self: Waiting, what: str, done: int, total: int) -> None:
        if (what.startswith("supervised"), done) == (True, 3):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Waiting, "on_progress", raise_at_3)
    out = tmp_path / "out"
    words = ["--task", f"{tasks}:letters", "--preset", "tiny", "--out", str(out), "--batch-size", "2"]
    assert main(["warm-start", *words, "--max-steps", "100", "--device", "cpu"]) == ExitCode.INTERRUPTED
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "stopping: the model is saved first; press Ctrl-C again to stop at once" in printed.err
    assert f"stopped after 3 of 100 steps, and not evaluated; go on from it: --model {out} --out …" in printed.err
    record = json.loads((out / RECORD).read_text())
    assert (record["steps"], record["interrupted"], record["evaluation"]) == (3, True, {})
    again = warm_start(f"{tasks}:letters", tmp_path / "next", model=str(out), max_steps=2, eval_size=2, device="cpu")
    assert again["start"]["steps"] == 3 and not again["interrupted"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_batches_of_worker_processes_are_the_same(tasks: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"preset": "tiny", "max_steps": 3, "batch_size": 3, "eval_size": 1, "device": "cpu"}
    alone, beside = (warm_start(f"{tasks}:letters", tmp_path / str(n), workers=n, **options) for n in (1, 2))
    assert alone["loss"] == beside["loss"] and alone["loss"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_the_record_of_an_embedded_model_goes_on(tasks: Path, tmp_path: Path) -> None:
    record = warm_start(f"{tasks}:letters", tmp_path / "out", model="tiny", max_steps=1, eval_size=1, device="cpu")
    assert record["start"]["command"].startswith("grpo warm-start ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_weights_are_written_as_small_as_asked_for(tasks: Path, tmp_path: Path) -> None:
    options: Any = {"preset": "tiny", "max_steps": 1, "batch_size": 2, "eval_size": 2, "device": "cpu"}
    record = warm_start(f"{tasks}:letters", tmp_path / "half", save_dtype="float16", **options)
    warm_start(f"{tasks}:letters", tmp_path / "whole", **options)
    half, whole = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole"))
    assert whole / 2 <= half < whole * 0.51
    assert record["save_dtype"] == "float16" and load_policy(str(tmp_path / "half"), device="cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_half_precision_is_of_the_products_alone(tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(Callback):
        def __init__(self) -> None:
            self.warnings: list[str] = []

        def on_warning(self, message: str) -> None:
            self.warnings.append(message)

    kept = Kept()
    monkeypatch.setattr("grpo_core.training.warm_start.emulates_bfloat16", lambda device: True)
    options: Any = {"preset": "tiny", "max_steps": 2, "batch_size": 2, "eval_size": 2, "device": "cpu"}
    half = warm_start(f"{tasks}:letters", tmp_path / "half", precision="bfloat16", callbacks=[kept], **options)
    assert f"--precision bfloat16: {EMULATED}" in kept.warnings
    whole = warm_start(f"{tasks}:letters", tmp_path / "whole", **options)
    assert half["loss"] != whole["loss"] and half["loss"]["2"] == pytest.approx(whole["loss"]["2"], rel=0.01)
    assert half["precision"] == "bfloat16"
    assert load_file(tmp_path / "half" / "model.safetensors")["model.norm.weight"].dtype == torch.float32


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_a_new_model_reads_with_a_tokenizer_learned_from_the_demos(tasks: Path, tmp_path: Path) -> None:
    learned, taken = tmp_path / "learned", tmp_path / "taken"
    options = {"preset": "tiny", "max_steps": 2, "batch_size": 8, "eval_size": 2, "device": "cpu"}
    warm_start(f"{tasks}:letters", learned, vocab_size=260, **options)
    warm_start(f"{tasks}:letters", taken, tokenizer=str(learned), **options)
    for folder in (learned, taken):
        policy = load_policy(str(folder), device="cpu")
        assert len(policy.tokenizer("say a:")["input_ids"]) == 4  # "say", two merges; " ", "a" and ":"
        assert policy.model.get_input_embeddings().num_embeddings == 260


def test_a_model_keeps_its_tokenizer_and_a_new_one_has_one(tasks: Path, tmp_path: Path) -> None:
    for options in ({"model": "tiny", "vocab_size": 300}, {"model": "tiny", "tokenizer": "tiny"}):
        with pytest.raises(UserError, match="has its tokenizer"):
            warm_start(f"{tasks}:letters", tmp_path / "out", **options)
    with pytest.raises(UserError, match="not both"):
        warm_start(f"{tasks}:letters", tmp_path / "out", preset="tiny", vocab_size=300, tokenizer="tiny")


def test_what_to_start_from_must_be_said_once(tasks: Path, tmp_path: Path) -> None:
    for options in ({}, {"model": "tiny", "preset": "tiny"}):
        with pytest.raises(UserError, match="not both"):
            warm_start(f"{tasks}:letters", tmp_path / "out", **options)


def test_a_file_where_the_folder_should_be_is_left_alone(tasks: Path) -> None:
    with pytest.raises(UserError, match="it is a file"):
        warm_start(f"{tasks}:letters", tasks, preset="tiny")


def test_a_folder_with_something_in_it_is_left_alone(tasks: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not empty"):
        warm_start(f"{tasks}:letters", tmp_path, preset="tiny")


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is reserved here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_room_for_the_model_is_held_while_it_is_trained(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = reserved_sizes(monkeypatch)
    options: dict[str, Any] = {"preset": "tiny", "max_steps": 2, "batch_size": 2, "eval_size": 1, "device": "cpu"}
    warm_start(f"{tasks}:letters", tmp_path / "a", **options)
    written = sum(path.stat().st_size for path in (tmp_path / "a").iterdir() if path.name != RECORD)
    assert written <= reserved[0] <= 1.1 * written
    monkeypatch.setattr("grpo_core.checkpoints.reservation.allocate", lambda file, size: errno.ENOSPC)
    with pytest.raises(UserError, match=r"the model needs 7\.0 MiB in .*b, and .* are free: No space left on device\."):
        warm_start(f"{tasks}:letters", tmp_path / "b", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "warm_tasks.py"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_folder_that_cannot_be_written_is_told_before_the_training(tasks: Path) -> None:
    with pytest.raises(UserError, match=r"--out /proc/model: nothing can be made in /proc: .* Give another folder"):
        warm_start(f"{tasks}:letters", "/proc/model", preset="tiny", max_steps=2, eval_size=1, device="cpu")


def test_rows_without_gold_are_refused(tasks: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no gold"):
        warm_start(f"{tasks}:nogold", tmp_path / "out", preset="tiny")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_examples_beyond_the_context_are_left_out_and_counted(tasks: Path, tmp_path: Path) -> None:
    tasks.write_text(TASK.replace('return f"say', 'return ("x" * 600 if row.letter == "a" else "") + f"say'))
    watch = Warnings()
    warm_start(
        f"{tasks}:letters", tmp_path / "out", preset="tiny", max_steps=2, batch_size=4, eval_size=8, callbacks=[watch]
    )
    assert [said for said in watch.messages if "longer than the model's context (512 tokens)" in said]


def test_what_trl_would_train_otherwise_is_refused(tasks: Path, tmp_path: Path) -> None:
    tasks.write_text(
        TASK
        + """
def chat(row):
    return [{"role": "user", "content": prompt(row)}]

def prefilled(row):
    return [*chat(row), {"role": "assistant", "content": "<think>"}]

chats = Task("chats", load, chat, validate, (same,), max_completion_length=4)
thinks = Task("thinks", load, prefilled, validate, (same,), max_completion_length=4)
"""
    )
    with pytest.raises(UserError, match="end in a prefilled message"):
        warm_start(f"{tasks}:thinks", tmp_path / "out", preset="tiny")
    with pytest.raises(UserError, match=r"letters are text and those of .*chats are messages"):
        warm_start(f"{tasks}:letters,{tasks}:chats", tmp_path / "out", preset="tiny")


def test_rows_that_cannot_be_held_out_are_told_before_the_training(tmp_path: Path) -> None:
    rows = "from grpo_core import Task, Row, reward\n\n\n@reward()\ndef one(answer):\n    return 1.0\n\n\n"
    only_train = "def load(config):\n    return [Row(id='a', gold='a')] if config.split == 'train' else []\n\n\n"
    task = "t = Task('t', load, lambda row: 'p', lambda text: text, (one,), row=Row)\n"
    (tmp_path / "t.py").write_text(rows + only_train + task)
    with pytest.raises(UserError, match="no rows for split 'test'"):
        warm_start(f"{tmp_path / 't.py'}:t", tmp_path / "out", preset="tiny", max_steps=1)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of examples above which a pass runs out of memory, and the sizes of the passes that were tried."""
    tried = [10**9]
    compute = LlamaModel.forward

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            tried.append(len(kwargs["input_ids"]))
            if tried[-1] > tried[0]:
                torch.rand(3)  # the failed pass has drawn numbers
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        return compute(model, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", forward)
    return tried


class Warnings(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_warning(self, message: str) -> None:
        self.messages.append(message)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_it_goes_on_in_smaller_passes_when_memory_runs_out(tasks: Path, tmp_path: Path, fits: list[int]) -> None:
    options: Any = {"preset": "tiny", "max_steps": 3, "batch_size": 8, "eval_size": 2, "device": "cpu"}
    whole = warm_start(f"{tasks}:letters", tmp_path / "whole", callbacks=[said := Warnings()], **options)
    assert fits[1:] == 3 * [8] and said.messages == []
    fits[:] = [2]
    parted = warm_start(f"{tasks}:letters", tmp_path / "parted", callbacks=[said], **options)
    assert fits[1:] == [8, 4, *12 * [2]], "halved to 4 and to 2, and never larger again"
    (warning,) = said.messages
    assert warning.startswith("out of memory in a forward or backward pass of 8 completions (")
    assert "supervised fine-tuning goes on with at most 4 completions in a pass, halved again" in warning
    assert parted["loss"]["3"] == pytest.approx(whole["loss"]["3"], rel=1e-4)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parted"))
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_a_batch_is_computed_in_passes_of_like_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warm_tasks.py").write_text(TASK.replace("gold=letter)", "gold=(ord(letter) - 96) * letter)"))
    shapes: list[tuple[int, ...]] = []
    compute = LlamaModel.forward

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            shapes.append(tuple(kwargs["input_ids"].shape))
        return compute(model, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", forward)
    options: Any = {"preset": "tiny", "max_steps": 2, "batch_size": 8, "eval_size": 2, "device": "cpu"}
    whole = warm_start(f"{tmp_path / 'warm_tasks.py'}:letters", tmp_path / "whole", **options)
    monkeypatch.setattr(supervised, "ROWS_ON_CPU", 2)
    parted = warm_start(f"{tmp_path / 'warm_tasks.py'}:letters", tmp_path / "parted", **options)
    assert [rows for rows, _ in shapes] == [8, 8, *8 * [2]]
    assert len({width for _, width in shapes[2:6]}) == 4, "each pass is as wide as its longest example"
    assert parted["loss"]["2"] == pytest.approx(whole["loss"]["2"], rel=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_muon_learns_and_is_recorded(tasks: Path, tmp_path: Path) -> None:
    record = warm_start(
        f"{tasks}:letters", tmp_path / "out", preset="tiny", max_steps=30, batch_size=8, learning_rate=3e-3,
        eval_size=8, device="cpu", optimizer="muon",
    )  # fmt: skip
    assert record["loss"]["30"] < 0.5 * record["loss"]["10"]
    assert record["optimizer"] == "muon"


@pytest.mark.slow  # half a minute before torch asks for the compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_compiling_without_a_compiler_is_one_line(tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    with pytest.raises(UserError, match=r"--compile: torch.compile failed: .*Leave it out") as caught:
        warm_start(f"{tasks}:letters", tmp_path / "out", preset="tiny", max_steps=1, batch_size=8, compile=True)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # a minute of compiling
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_compiled_layers_learn_the_same(tasks: Path, tmp_path: Path) -> None:
    options: Any = {"preset": "tiny", "max_steps": 3, "batch_size": 8, "eval_size": 2, "device": "cpu"}
    plain = warm_start(f"{tasks}:letters", tmp_path / "plain", **options)
    compiled = warm_start(f"{tasks}:letters", tmp_path / "compiled", compile=True, **options)
    assert compiled["loss"]["3"] == pytest.approx(plain["loss"]["3"], rel=1e-3)
    assert (
        load_file(tmp_path / "plain" / "model.safetensors").keys()
        == load_file(tmp_path / "compiled" / "model.safetensors").keys()
    )


def test_muon_follows_the_schedule_after_its_state_was_loaded_as_accelerate_does() -> None:
    model, _ = fresh_model("tiny", 0)
    optimizer = MuonAndAdamW(model, 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    optimizer.load_state_dict(optimizer.state_dict())
    before = [each.detach().clone() for each in model.parameters()]
    for _ in range(2):
        model(input_ids=(tokens := torch.arange(64)[None]), labels=tokens).loss.backward()
        optimizer.step()
        schedule.step()
    assert all((each != old).any() for each, old in zip(model.parameters(), before, strict=True))
    assert {group["lr"] for part in optimizer._parts for group in part.param_groups} == {1e-4}


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


@pytest.mark.parametrize(("emulates", "muon"), [(True, Float32Muon), (False, torch.optim.Muon)])
def test_muon_is_in_float32_where_bfloat16_is_emulated(
    emulates: bool, muon: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.training.muon.emulates_bfloat16", lambda device: emulates)
    model, _ = fresh_model("tiny", 0)
    assert type(MuonAndAdamW(model, 1e-3)._parts[0]) is muon


def test_muon_trains_the_matrices_of_layers_and_adamw_the_rest() -> None:
    muon = Float32Muon if emulates_bfloat16(torch.device("cpu")) else torch.optim.Muon
    model, _ = fresh_model("tiny", 0)
    twin, _ = fresh_model("tiny", 0)
    optimizer = MuonAndAdamW(model, 1e-3)
    halving = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_an_example_that_does_not_fit_ends_it_with_advice(tasks: Path, tmp_path: Path, fits: list[int]) -> None:
    fits[:] = [0]
    with pytest.raises(OutOfMemoryError, match=r"supervised fine-tuning.*one completion.*--precision bfloat16"):
        warm_start(f"{tasks}:letters", tmp_path / "out", preset="tiny", max_steps=1, batch_size=4, device="cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
def test_a_model_gets_more_layers_and_its_record_says_so(tasks: Path, tmp_path: Path) -> None:
    small, deeper = tmp_path / "small", tmp_path / "deeper"
    warm_start(f"{tasks}:letters", small, preset="tiny", max_steps=1, batch_size=4, eval_size=2)
    record = warm_start(
        f"{tasks}:letters", deeper, model=str(small), add_layers=2, max_steps=1, batch_size=4, eval_size=2
    )
    assert (record["add_layers"], "add_layers" in record["start"]) == (2, False)
    assert json.loads((deeper / RECORD).read_text())["add_layers"] == 2
    assert load_policy(str(deeper), device="cpu").model.config.num_hidden_layers == 6


def test_layers_are_added_to_a_model_alone(tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["warm-start", "--task", f"{tasks}:letters", "--out", str(tmp_path / "out")]
    assert main([*options, "--preset", "tiny", "--add-layers", "2"]) == ExitCode.USER_MISTAKE
    assert "--add-layers 2 is for a --model; a --preset has its depth" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
