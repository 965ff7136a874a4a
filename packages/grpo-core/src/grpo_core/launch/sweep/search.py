"""Configurations that Optuna proposes, from the results of those before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from grpo_core.launch.sweep.definition import Range, text_of
from grpo_core.launch.sweep.folder import RunStatus, SweepFolder, SweepRun
from grpo_core.launch.sweep.metrics import DEFAULT, goal_of, interim_values, numbers_of, value_of
from grpo_core.launch.sweep.processes import Queue

optuna.logging.set_verbosity(optuna.logging.WARNING)

LOOK_EVERY = 5
"""Looks at a run's process for each look at its evaluations: once a second."""


class Search(Queue):
    """A queue that asks Optuna for each next run.

    The study is made anew from the runs in the folder, so that nothing else has to survive a kill.

    Args:
        folder: Folder of the sweep, which has begun.
    """

    def __init__(self, folder: SweepFolder) -> None:
        super().__init__(())
        definition = folder.definition
        self._folder, self._definition = folder, definition
        self._metric = definition.metric or DEFAULT
        self._space = {key: _distribution(values) for key, values in definition.parameters.items()}
        assert folder.plan is not None
        planned = folder.plan.runs
        self._study = optuna.create_study(
            direction="maximize" if goal_of(self._metric, definition.goal) == "max" else "minimize",
            # Another seed after each start: otherwise the same configurations would be drawn again.
            sampler=optuna.samplers.TPESampler(seed=(definition.draw_seed + len(planned)) % 2**32, constant_liar=True),
            pruner=optuna.pruners.MedianPruner() if definition.prune else optuna.pruners.NopPruner(),
        )
        self._trials: dict[str, optuna.Trial] = {}
        self._reported: dict[str, int] = {}
        self._looks: Counter[str] = Counter()
        self._again: list[SweepRun] = []
        self._left = (definition.trials or 0) - len(planned)
        for status in map(folder.status, planned):
            if status.is_done:
                self._add(status)
            else:
                self._again.append(status.run)

    def take(self) -> SweepRun | None:
        """Return the next run: first those that an earlier start has not ended."""
        if self._again:
            run = self._again.pop(0)
            if self._is_inside(run):
                self._study.enqueue_trial(self._values(run))
                self._trials[run.name] = self._study.ask(self._space)
            return run
        while self._left > 0:
            self._left -= 1
            trial = self._study.ask(self._space)
            settings = {key: text_of(trial.params[key]) for key in self._space}
            assert self._folder.plan is not None
            if any(run.settings == settings for run in self._folder.plan.runs):
                self._study.tell(trial, state=TrialState.FAIL)  # the same once more would teach nothing
                continue
            (run,) = self._folder.add(settings, self._definition.seeds)
            self._folder.save()
            self._trials[run.name] = trial
            return run
        return None

    def is_hopeless(self, run: SweepRun, path: Path) -> bool:
        """Report the interval evaluations of a run; whether they are below the median of the others."""
        self._looks[run.name] += 1
        trial = self._trials.get(run.name)
        if trial is None or not self._definition.prune or self._looks[run.name] % LOOK_EVERY:
            return False
        for step, value in interim_values(path, self._metric).items():
            if step > self._reported.get(run.name, -1):
                self._reported[run.name] = step
                trial.report(value, step)
                if trial.should_prune():
                    return True
        return False

    def ended(self, status: RunStatus) -> None:
        """Tell Optuna the result of a run."""
        trial = self._trials.pop(status.run.name, None)
        if trial is None:
            return
        value = _result(status, self._metric)
        if status.state == "pruned":
            self._study.tell(trial, state=TrialState.PRUNED)
        elif value is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)

    def _add(self, status: RunStatus) -> None:
        """Add a run of an earlier start to the study."""
        value = _result(status, self._metric)
        state = TrialState.PRUNED if status.state == "pruned" else TrialState.COMPLETE
        if not self._is_inside(status.run) or (value is None and state == TrialState.COMPLETE):
            return
        assert status.path is not None
        self._study.add_trial(
            create_trial(
                state=state,
                value=value,
                params=self._values(status.run),
                distributions=self._space,
                intermediate_values=interim_values(status.path, self._metric),
            )
        )

    def _is_inside(self, run: SweepRun) -> bool:
        """Whether a run lies in the space; the definition may have changed."""
        if run.settings.keys() != self._space.keys():
            return False
        try:
            values = self._values(run)
            return all(space._contains(space.to_internal_repr(values[key])) for key, space in self._space.items())
        except ValueError:  # not one of the choices, or no number
            return False

    def _values(self, run: SweepRun) -> dict[str, Any]:
        return {
            key: text if isinstance(self._space.get(key), CategoricalDistribution) else _number(text)
            for key, text in run.settings.items()
        }


def _result(status: RunStatus, metric: str) -> float | None:
    if status.path is None or not status.is_done:
        return None
    if status.state == "pruned":
        return next(reversed(interim_values(status.path, metric).values()), None)
    return value_of(numbers_of(status.path), metric)


def _distribution(values: Sequence[Any] | Range) -> BaseDistribution:
    if not isinstance(values, Range):
        return CategoricalDistribution([text_of(value) for value in values])
    if values.is_whole:
        return IntDistribution(int(values.min), int(values.max), log=values.log, step=int(values.step or 1))
    return FloatDistribution(float(values.min), float(values.max), log=values.log, step=values.step)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
