"""Asks an engine, and ends while the engine is idle or still searches: `asking_process.py ENGINE FEN END`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from grpo_tasks_chess.engine.pool import EnginePool

engine, fen, end = sys.argv[1:]
asking = threading.Thread(target=EnginePool(engine).analyse, args=[fen], daemon=True)
asking.start()
while asking.is_alive() and not Path(engine).with_name("hung").exists():
    time.sleep(0.01)
print("asked", flush=True)
if end == "fails":
    raise ValueError
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
