import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from peft import LoraConfig, get_peft_model
from safetensors import safe_open

from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.process import ServerProcess, visible_device
from grpo_core.engines.servers.vllm import open_vllm
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.errors import EngineError, UserError

SUPPORT = Path(__file__).parents[2] / "support"
MODEL, TOKENIZER = fresh_model("tiny", 0)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="vLLM is on Linux only")


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package `vllm` for the server's process, and for the look whether there is one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.syspath_prepend(SUPPORT / "fake_vllm")
    monkeypatch.setenv("PYTHONPATH", f"{SUPPORT / 'fake_vllm'}:{SUPPORT}")


Opened = Callable[..., ServerEngine]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens engines, which are closed after the test."""
    with ExitStack() as stack:

        def open_one(model: Any = MODEL, **options: Any) -> ServerEngine:
            engine = open_vllm(model, TOKENIZER, **{"max_batch_tokens": 256, "precision": "float32", **options})
            stack.callback(engine.close)
            return engine

        yield open_one


def complete(engine: ServerEngine) -> str:
    ((_, completion),) = engine.generate([Request((1, 2), SampleKey(0, 0, "a", 0))], Sampling(max_completion_length=8))
    return completion.text


def log_of(engine: ServerEngine) -> Path:
    socket = engine.client.uds
    assert socket is not None
    return Path(socket).with_name("server.log")


def wait_until(done: Callable[[], bool], what: object) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline, f"{what} is still there"
        time.sleep(0.02)


class Engine:
    """The process that a server starts, and its shared memory, as the server's log names them."""

    def __init__(self, log: Path) -> None:
        said = log.read_text()
        self.pid = int(said.partition("engine: ")[2].split()[0])
        self.memory = Path(said.partition("memory: ")[2].split()[0])
        assert self.memory.exists()

    def is_gone(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
                return False
        return not self.memory.exists()


def test_a_run_starts_a_server_and_ends_it_with_all_that_it_started(opened: Opened, fake_vllm: None) -> None:
    engine = opened(sampling=Sampling(temperature=0.7), options="--seed 3 --swap-space '1 GiB'")
    log = log_of(engine)
    said = log.read_text()
    assert complete(engine) == "7"
    for words in (
        "'--max-model-len', '256'",
        "'--logprobs-mode', 'processed_logprobs'",
        "'--enforce-eager'",
        "'--swap-space', '1 GiB'",
        "'config.json', 'generation_config.json', 'model.safetensors', 'tokenizer.json'",
    ):
        assert words in said
    assert oct(log.parent.stat().st_mode & 0o777) == "0o700"  # nobody else reaches the socket
    started = Engine(log)
    engine.close()
    wait_until(started.is_gone, "its engine")
    assert not log.parent.exists()


def test_an_adapters_server_has_its_base_model(opened: Opened, fake_vllm: None, monkeypatch: Any) -> None:
    model = get_peft_model(fresh_model("tiny", 1)[0], LoraConfig(r=9, target_modules=["q_proj", "down_proj"]))
    names: list[str] = []
    wait = ServerProcess.wait_until_up

    def look(self: ServerProcess, timeout_s: float) -> None:
        folder = Path(self._process.args[self._process.args.index("--model") + 1])
        with safe_open(folder / "model.safetensors", "pt") as file:
            names.extend(file.keys())
        wait(self, timeout_s)

    monkeypatch.setattr(ServerProcess, "wait_until_up", look)
    engine = opened(model)
    assert "'--enable-lora', '--max-loras', '1', '--max-lora-rank', '16'" in log_of(engine).read_text()
    assert complete(engine) == "7"
    assert set(names) == {name for name, _ in fresh_model("tiny", 1)[0].named_parameters()}


def test_a_server_that_does_not_start_says_why(opened: Opened, fake_vllm: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("FAKE_VLLM", "fails")
    with pytest.raises(EngineError, match=r"exit status 1; it said: ValueError: No available memory .*server\.log"):
        opened()
    monkeypatch.setattr("grpo_core.engines.servers.process.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'grpo-core\[vllm\]'.*engine\.url"):
        opened()


def test_a_server_that_takes_too_long_is_given_up(opened: Opened, fake_vllm: None, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"not up after 0\.01 s \(engine\.args\.start_timeout_s\)"):
        opened(start_timeout_s=0.01)
    assert list(tmp_path.glob("grpo-vllm-*/server.log"))  # which the message names
    assert not list(tmp_path.glob("grpo-weights-*"))


@pytest.mark.parametrize(("options", "message"), [
    ({"options": "--foo 'x"}, r"engine\.args\.options.*No closing quotation"),
    ({"options": "--seed 3 --uds /elsewhere"}, r"engine\.args\.options.*--uds is set by the run"),
    ({"options": "--logprobs_mode=raw_logits"}, r"engine\.args\.options.*--logprobs-mode is set by the run"),
    ({"transfer": "nccl"}, r"needs engine\.url"),  # a server of its own card
])  # fmt: skip
def test_options_of_the_run_are_refused(opened: Opened, fake_vllm: None, options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        opened(**options)


def test_a_server_that_is_killed_is_one_line(opened: Opened, fake_vllm: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    engine = opened()
    started = Engine(log_of(engine))
    with pytest.raises(EngineError, match=r"^the vLLM server is gone .*killed by SIGKILL; its output: /\S+log\)$"):
        complete(engine)
    wait_until(started.is_gone, "its engine")
    engine.close()
    assert log_of(engine).exists()


def test_a_server_ends_with_a_trainer_that_is_killed(fake_vllm: None, tmp_path: Path) -> None:
    program = SUPPORT / "vllm_holder.py"
    with subprocess.Popen([sys.executable, program, tmp_path], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        log = Path(trainer.stdout.readline().strip())
        started = Engine(log)
        os.kill(trainer.pid, signal.SIGKILL)
    wait_until(started.is_gone, "its engine")
    wait_until(lambda: not log.parent.exists(), log)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_weights_do_not_outlive_a_trainer_whose_group_gets_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
    program = Path(__file__).with_name("programs") / "scratch_holder.py"
    with subprocess.Popen(
        [sys.executable, program, tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as trainer:  # fmt: skip
        assert trainer.stdout is not None
        folder = Path(trainer.stdout.readline().strip())
        assert (folder / "model.safetensors").exists()
        os.killpg(trainer.pid, stop)
    wait_until(lambda: not folder.exists(), folder)


@pytest.mark.parametrize(
    ("index", "visible", "expected"), [(None, "0", None), (1, "", "1"), (1, "4,6", "6"), (0, "GPU-a,GPU-b", "GPU-a")]
)
def test_a_server_sees_the_trainers_accelerator_alone(index: int | None, visible: str, expected: str | None) -> None:
    variables = visible_device(index, {"CUDA_VISIBLE_DEVICES": visible})
    assert variables.get("CUDA_VISIBLE_DEVICES") == expected
