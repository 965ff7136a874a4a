"""Uses the sandbox as a user who is not root, at each level, and looks for what the weak one leaves behind."""

import glob
import os
import tempfile

from grpo_tasks_code.sandbox import Sandbox

assert os.getuid() != 0
codes = ["print(1)", "1 / 0", "while True: pass", "bytearray(1 << 40)", "print('x' * 2_000_000)", "x = "]
pattern = tempfile.gettempdir() + "/grpo-sandbox-*"
for name in ("L3", "L2", "L1"):
    before = set(glob.glob(pattern))
    with Sandbox(name, workers=1, allow_weak=True) as sandbox:
        print(sandbox.level.name, *(sandbox.run(code, timeout_s=0.5).status for code in codes))
        print(
            sandbox.run("import os; open('x', 'w').write('1'); os.mkdir('d'); print(open('x').read())").stdout.strip()
        )
        print(sandbox.run("import os; print([os.path.exists(name) for name in 'xd'])").stdout.strip())
        print(sandbox.run_tests("def f(n): return n", ["assert f(1) == 1", "assert f(1) != 2"]).passed)
        own = set(glob.glob(pattern)) - before
    print(any(os.path.exists(each) and os.stat(each).st_uid == os.getuid() for each in own))
