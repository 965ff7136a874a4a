"""A worker that verifies, and says how many processes it has started."""

import psutil

from grpo_tasks_math.verify import verify, warm


def factory():
    warm()
    return handle


def handle(payload):
    verdict = verify(r"\sqrt[3]{x} + 1", payload.decode())
    return f"{verdict} {len(psutil.Process().children())}".encode()
