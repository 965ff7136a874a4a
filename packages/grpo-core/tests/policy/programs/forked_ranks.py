"""Runs `first_rank_loads` FOLDER OUT on two ranks: forks of this process where that is safe, which import nothing."""

import multiprocessing
import os
import socket
import sys
from pathlib import Path

import first_rank_loads


def work(rank: int) -> None:
    os.environ["RANK"] = str(rank)
    first_rank_loads.main(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port))
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    ranks = [context.Process(target=work, args=(rank,)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))
