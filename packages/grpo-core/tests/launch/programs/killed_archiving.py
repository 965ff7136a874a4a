"""The command line of its arguments, which kills itself in the middle of a file."""

import os
import signal
import sys

from grpo_core.launch import archive, storage
from grpo_sdk.cli.main import main

left = 4


def killing(blocks):
    def call(*arguments):
        global left
        left -= 1
        for block in blocks(*arguments):
            if left == 0 and len(block) > 1000:
                yield block[: len(block) // 2]
                os.kill(os.getpid(), signal.SIGKILL)
            left = left or 1
            yield block

    return call


archive._blocks = killing(archive._blocks)
storage.Storage.blocks = killing(storage.Storage.blocks)
sys.exit(main(sys.argv[1:]))
