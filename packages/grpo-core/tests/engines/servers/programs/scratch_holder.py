"""Keeps weights in a scratch folder below the given one, until it is ended."""

import signal
import sys
import time
from pathlib import Path

from grpo_core.engines.servers.scratch import ScratchFolder

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
scratch = ScratchFolder("grpo-weights-", Path(sys.argv[1]))
(scratch.path / "model.safetensors").write_bytes(bytes(9))
print(scratch.path, flush=True)
time.sleep(600)
