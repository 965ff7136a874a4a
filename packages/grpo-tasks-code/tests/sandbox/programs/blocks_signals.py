"""A caller that ignores or blocks all signals; its programs do not."""

import signal

from grpo_tasks_code.sandbox import Sandbox

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
for level in ("L3", "L2"):
    with Sandbox(level) as sandbox:
        print(sandbox.run("from signal import *; print(getsignal(17), pthread_sigmask(0, ()))").stdout)
