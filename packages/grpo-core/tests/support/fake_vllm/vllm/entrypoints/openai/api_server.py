"""A server with vLLM's options. FAKE_VLLM says how it behaves: `fails` to start, or dies at the first completion."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from vllm_server import FakeVLLM, UnixServer, ends_at_once, handler_of

REMOVE_AFTER_THE_END = "import os, sys, time; sys.stdin.read(); time.sleep(0.5); os.unlink(sys.argv[1])"
"""A process that removes shared memory a moment after the server has ended, as Python's resource tracker does."""

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
    engine = subprocess.Popen(["sleep", "600"])  # as vLLM's engine is a process of its own
    descriptor, memory = tempfile.mkstemp(prefix="fake_vllm_", dir="/dev/shm")
    os.close(descriptor)
    remover = [sys.executable, "-S", "-c", REMOVE_AFTER_THE_END, memory]
    tracker = subprocess.Popen(remover, stdin=subprocess.PIPE, start_new_session=True)
    print("engine:", engine.pid, "memory:", memory, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: (engine.kill(), sys.exit(0)))
    fake = FakeVLLM(
        respond, lora=options.enable_lora, max_model_len=options.max_model_len,
        config={"logprobs_mode": options.logprobs_mode},
    )  # fmt: skip
    with tracker:
        UnixServer(options.uds, handler_of(fake)).serve_forever()


if __name__ == "__main__":
    main()
