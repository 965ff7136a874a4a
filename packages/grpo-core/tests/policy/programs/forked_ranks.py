"""Runs `first_rank_loads` on two ranks, FOLDER OUT: forks of this process, so that what they need is imported once."""

import multiprocessing
import os
import socket
import sys
from pathlib import Path

import first_rank_loads

SIZE = 2
FORK = multiprocessing.get_context("fork")


def work(rank: int) -> None:
    os.environ["RANK"] = str(rank)
    first_rank_loads.main(Path(sys.argv[1]), Path(sys.argv[2]))


with socket.create_server(("localhost", 0)) as free:
    port = free.getsockname()[1]
os.environ.update(WORLD_SIZE=str(SIZE), LOCAL_WORLD_SIZE=str(SIZE), MASTER_ADDR="localhost", MASTER_PORT=str(port))
ranks = [FORK.Process(target=work, args=(rank,)) for rank in range(SIZE)]
for process in ranks:
    process.start()
for process in ranks:
    process.join()
sys.exit(max(abs(process.exitcode or 0) for process in ranks))
