"""A server with SGLang's options. FAKE_SGLANG=dies has it die at the first completion."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from sglang_server import FakeSGLang, ends_at_once
from vllm_server import TCPServer, handler_of


def respond(server: FakeSGLang, body: dict[str, Any]) -> dict[str, Any]:
    if os.environ.get("FAKE_SGLANG") == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return ends_at_once(server, body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--config")
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--enable-lora", action="store_true")
    options, _ = parser.parse_known_args()
    print("options:", sys.argv[1:], "files:", sorted(os.listdir(options.model_path)), flush=True)
    engine = subprocess.Popen(["sleep", "600"])  # as SGLang's scheduler is a process of its own
    print("engine:", engine.pid, flush=True)
    key = yaml.safe_load(Path(options.config).read_text())["api-key"]
    fake = FakeSGLang(respond, key=key, context=options.context_length, info={"enable_lora": options.enable_lora})
    TCPServer((options.host, options.port), handler_of(fake)).serve_forever()


if __name__ == "__main__":
    main()
