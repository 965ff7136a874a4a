"""Verifies without the symbolic engine, then with it, and ends."""

import sys

from grpo_tasks_math.rewards import accuracy
from grpo_tasks_math.verify import verify

assert verify("1/2", "0.5") == verify("(x+1)^2", "x^2+2x+1") == "correct" and accuracy("5", "5") == 2.0
heavy = {"torch", "sympy", "math_verify", "transformers", "datasets", "numpy"} & set(sys.modules)
assert not heavy, heavy
print(verify(r"\sqrt[3]{x}+1", r"\boxed{1+\sqrt[3]{x}}", 60.0).value)
