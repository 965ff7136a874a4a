"""grpo-run that listens to Ctrl-C: tests in the background ignore it, and so would their children."""

import signal
import sys

signal.signal(signal.SIGINT, signal.default_int_handler)
from grpo_sdk.cli.start import main  # noqa: E402 - as a terminal's process, which listens from the start

sys.exit(main())
