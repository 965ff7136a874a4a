"""Uses the sandbox as a user who is not root."""

import os

from grpo_tasks_code.sandbox import level, run, run_tests

assert os.getuid() != 0
codes = ["print(1)", "1 / 0", "while True: pass", "bytearray(1 << 40)", "print('x' * 2_000_000)", "x = "]
print(level(allow_weak=True).name, [run(code, timeout_s=0.5, allow_weak=True).status for code in codes])
print(run("import os; open('x', 'w').write('1'); print(open('x').read())", allow_weak=True).stdout.strip())
print(run("import os; print(os.path.exists('x'))", allow_weak=True).stdout.strip())
print(run_tests("def f(n): return n", ["assert f(1) == 1", "assert f(1) != 2"], allow_weak=True).passed)
