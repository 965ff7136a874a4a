"""Held-out evaluation. Whoever asks for one, `answers.evaluate_rows` answers and scores the rows.

settings, plan              how and when a task is evaluated: what the user says, else the task, else our defaults
held_out                    the tasks that are evaluated, on their held-out rows
sampling, candidate         what is asked and answered, by an endpoint or by a model of this process
answers                     rows answered and scored, by one process or by several
results, intervals, surprisal   every completion, and the numbers with their intervals
entry, output               the entry of `summary.json`, and the files
evaluate, one_model         `grpo_core.evaluate` and `grpo eval`
runs, run_models            `grpo eval --run`: every checkpoint of a run
evaluator                   within a training run
trl                         within a training by TRL

Beside it: replay, with rescoring and replayed_advantages (`grpo replay`); forecast (`grpo forecast`); completer, a
model that completes prompts; model_judges, the process of a judge.
"""

from grpo_core.display import import_bars_quietly

import_bars_quietly()  # before any module of this package imports a library that uses them
