"""Looks for what programs of the weak level leave in the folder of temporary files."""

import glob
import os
import tempfile

from grpo_tasks_code.sandbox import Sandbox

pattern = tempfile.gettempdir() + "/grpo-sandbox-*"
before = set(glob.glob(pattern))
with Sandbox("L1", allow_weak=True) as sandbox:
    print(sandbox.run('open("left", "w"); import os; os.mkdir("d")').status)
    print(sandbox.run('import os; print(os.listdir("."))').stdout.strip())
    own = set(glob.glob(pattern)) - before
print(any(os.path.exists(each) and os.stat(each).st_uid == os.getuid() for each in own))
