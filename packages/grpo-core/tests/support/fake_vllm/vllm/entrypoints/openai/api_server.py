"""A server with vLLM's options. FAKE_VLLM says how it behaves: `fails` to start, or dies at the first completion."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from vllm_server import FakeVLLM, UnixServer, ends_at_once, handler_of

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
    memory = SharedMemory(create=True, size=64)  # as vLLM's processes talk through it; whatever ends them removes it
    print("engine:", engine.pid, "memory:", memory.name, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: (engine.kill(), sys.exit(0)))
    fake = FakeVLLM(
        respond, lora=options.enable_lora, max_model_len=options.max_model_len,
        config={"logprobs_mode": options.logprobs_mode},
    )  # fmt: skip
    UnixServer(options.uds, handler_of(fake)).serve_forever()


if __name__ == "__main__":
    main()
