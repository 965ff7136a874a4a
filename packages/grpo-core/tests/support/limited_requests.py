"""Makes requests within shared limits, as a process of a run does: `python limited_requests.py FILE LOG`, or `die`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from grpo_sdk.judges.database import Bounds, SharedLimits

NAME = "m at http://a"


def main(file: str, log: str) -> None:
    if log == "die":
        SharedLimits(Path(file), NAME, Bounds(1, lease_s=1e6)).begin(1)
        os.kill(os.getpid(), signal.SIGKILL)
    shared = SharedLimits(Path(file), NAME, Bounds(2))

    async def one() -> None:
        async with shared.admitted(1):
            for sign in ("+", "-"):
                with open(log, "a") as output:
                    output.write(sign)
                await asyncio.sleep(0.02 if sign == "+" else 0)

    async def several() -> None:
        await asyncio.gather(*(one() for _ in range(6)))

    asyncio.run(several())


if __name__ == "__main__":
    main(*sys.argv[1:])
