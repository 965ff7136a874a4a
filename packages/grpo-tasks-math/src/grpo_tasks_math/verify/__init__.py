"""The safe answer verifier.

`verify(gold, completion)` gives one of four verdicts, on any text, from any thread or process, in bounded time:
extract (where the answer stands) → values (what it says) → compare (exactly) → symbolic (math-verify, killable).
"""

from grpo_tasks_math.verify.check import Options, Verdict, close, extract_answer, judge, spelled, verify, warm
from grpo_tasks_math.verify.extract import Decimals, Reading

__all__ = ["Decimals", "Options", "Reading", "Verdict", "close", "extract_answer", "judge", "spelled", "verify", "warm"]
