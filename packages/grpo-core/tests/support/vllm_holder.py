"""A trainer with a server of its own; prints the path of the server's log and waits to be killed."""

import sys
import time
from pathlib import Path

from grpo_core.engines.servers.process import ServerProcess

server = ServerProcess(Path(sys.argv[1]), ["--max-model-len", "64"], timeout_s=60)
server.wait_until_up(60)
print(server.log, flush=True)
time.sleep(600)
