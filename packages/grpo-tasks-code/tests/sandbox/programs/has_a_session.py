"""A process with an interpreter that is paused, for the test that kills it."""

import time

from grpo_tasks_code.sessions import PythonSession

session = PythonSession()
print(session.python("1 + 1"), flush=True)
time.sleep(900)
