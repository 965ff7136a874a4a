"""Training. `trainer` is the loop: read it first, after `examples/minimal_grpo.py`.

start, resume, warm_start       what Python and the commands call
setup                           what a run needs before its first step: task_data, starting_policy, and the plan
collect, batches, overlap       a step's completions with their scores
state, run_checkpoints, stored_run      the state of a run, written and read
evaluations, report, run_folder, stop   what follows a step: held-out rows, logs, files, the end
"""

from grpo_core.display import import_bars_quietly

import_bars_quietly()  # before any module of this package imports a library that uses them
