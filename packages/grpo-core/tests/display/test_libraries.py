import os
import subprocess
import sys

HIDDEN = """
import huggingface_hub.utils  # reads the variable, as it does for a list of cached models
from grpo_sdk.display.libraries import hide_bars
hide_bars()
print(huggingface_hub.utils.are_progress_bars_disabled())
"""


def test_bars_are_hidden_though_the_hub_library_is_imported_already() -> None:
    environment = {key: value for key, value in os.environ.items() if "DISABLE_PROGRESS_BARS" not in key}
    done = subprocess.run([sys.executable, "-c", HIDDEN], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
