"""A server with vLLM's options. FAKE_VLLM says how it behaves: `fails` to start, or dies at the first completion."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from vllm_server import FakeVLLM, UnixServer, ends_at_once, handler_of

ENGINE = """
import subprocess, sys, time
subprocess.Popen([*sys.argv[1:], "from multiprocessing." + "resource_tracker import main"], stdin=subprocess.PIPE)
time.sleep(600)
"""
"""vLLM's engine is a process of its own, and starts the tracker of its shared memory."""

TRACKER = "import os, sys, time; sys.stdin.read(); time.sleep(0.5); os.unlink(sys.argv[1])"
"""Removes shared memory a moment after the engine has ended, as Python's resource tracker does, whose name it bears."""

BEHAVIOUR = os.environ.get("FAKE_VLLM", "")


def respond(server: FakeVLLM, body: dict[str, Any]) -> dict[str, Any]:
    if BEHAVIOUR == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return ends_at_once(server, body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--uds")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--logprobs-mode")
    parser.add_argument("--enable-lora", action="store_true")
    options, _ = parser.parse_known_args()
    print("options:", sys.argv[1:], "files:", sorted(os.listdir(options.model)), flush=True)
    if BEHAVIOUR == "fails":
        raise ValueError("No available memory for the cache blocks.")
    descriptor, memory = tempfile.mkstemp(prefix="fake_vllm_", dir="/dev/shm")
    os.close(descriptor)
    python = (sys.executable, "-S", "-c")
    engine = subprocess.Popen([*python, ENGINE, *python, TRACKER, memory])
    print("engine:", engine.pid, "memory:", memory, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: (engine.kill(), sys.exit(0)))
    fake = FakeVLLM(
        respond, lora=options.enable_lora, max_model_len=options.max_model_len,
        config={"logprobs_mode": options.logprobs_mode},
    )  # fmt: skip
    UnixServer(options.uds, handler_of(fake)).serve_forever()


if __name__ == "__main__":
    main()
