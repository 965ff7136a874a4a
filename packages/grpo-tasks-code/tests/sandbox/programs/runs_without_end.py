"""A caller whose two programs run for ever, for the test that kills it."""

import sys
import threading
import time

from grpo_tasks_code.sandbox import Sandbox

sandbox = Sandbox(sys.argv[1], workers=2)
sandbox.run("pass", timeout_s=60)
for _ in range(2):
    threading.Thread(target=sandbox.run, args=("while True: pass",), kwargs={"timeout_s": 900}).start()
time.sleep(900)
