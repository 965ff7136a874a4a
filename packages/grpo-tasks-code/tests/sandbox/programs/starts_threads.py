"""Starts threads without end, and prints how many it got each time."""

import threading
import time

threading.stack_size(32768)
started = 0
print("begun", flush=True)
while True:
    try:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        started += 1
    except RuntimeError:
        if started:
            print(started, flush=True)
        started = 0
        time.sleep(0.001)
