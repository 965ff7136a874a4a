"""The `MBPP_…` environment variables of rl_coding_games, with lower priority than command line and task spec."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grpo_sdk import UserError

PREFIX = "MBPP_"

_OFF = frozenset({"", "none", "null"})
"""Spellings of an unset value in YAML and shells."""

SAMPLED_TEMPERATURE = 0.2
"""Temperature of the reference system where sampling is requested without a temperature."""


class MBPPEnvironment(BaseModel):
    """Values of the variables, with defaults for those that are not set.

    The reference system evaluates 5 problems at temperature 0.2. Here an evaluation takes all problems, greedily,
    unless a variable says otherwise: with 5 problems, 5 solved and 2 solved do not differ significantly.

    Attributes:
        eval_enabled: Whether training evaluates the task.
        eval_num_questions: Problems per evaluation, always the same ones; None takes `eval.size`, 512, which is more
            than a split of MBPP has.
        eval_at_start: Evaluate the starting model.
        eval_at_end: Evaluate the trained model.
        eval_interval_steps: Steps between evaluations; None for no evaluation during training.
        dataset_path: Local file, as the task's `path`.
        use_sanitized: Whether to use the hub's sanitized variant, else the full one.
        test_split: Split to evaluate.
        timeout_seconds: The task's `timeout_s`.
        max_memory_mb: The task's `memory_mib`.
        safe_execution: Programs always run in the sandbox; false is refused.
        max_new_tokens: Tokens per completion.
        temperature: Temperature of an evaluation; None takes `eval.temperature`, 0.
        do_sample: False means temperature 0; true without a temperature means 0.2, as in the reference system.
        save_results: Whether to write the summary and detail files.
        results_dir: Folder of the files; by default `mbpp_eval` in the run's folder.
        verbose: Accepted for compatibility; `grpo … --quiet` decides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    eval_enabled: bool = True
    eval_num_questions: int | None = Field(default=None, ge=1)
    eval_at_start: bool = True
    eval_at_end: bool = True
    eval_interval_steps: int | None = Field(default=20, ge=1)
    dataset_path: str | None = None
    use_sanitized: bool | None = None
    test_split: Literal["train", "validation", "test"] = "test"
    timeout_seconds: float | None = None
    max_memory_mb: int | None = None
    safe_execution: bool = True
    max_new_tokens: int = Field(default=512, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    do_sample: bool | None = None
    save_results: bool = True
    results_dir: str | None = None
    verbose: bool | None = None

    @property
    def eval_temperature(self) -> float | None:
        """Temperature of an evaluation; None if no variable sets it."""
        if self.do_sample is False:
            return 0.0
        return SAMPLED_TEMPERATURE if self.do_sample and self.temperature is None else self.temperature

    @property
    def task_options(self) -> dict[str, Any]:
        """Task options that the variables set."""
        variant = None if self.use_sanitized is None else ("sanitized" if self.use_sanitized else "full")
        options = {
            "path": self.dataset_path,
            "variant": variant,
            "timeout_s": self.timeout_seconds,
            "memory_mib": self.max_memory_mb,
        }
        return {name: value for name, value in options.items() if value is not None}


def mbpp_environment(environ: Mapping[str, str] | None = None) -> MBPPEnvironment:
    """Read the variables.

    Args:
        environ: Environment to read in place of the process's own.

    Raises:
        UserError: an invalid value, or a misspelt name; says which variable.
    """
    source = os.environ if environ is None else environ
    return _read(tuple(sorted((name, value) for name, value in source.items() if name.startswith(PREFIX))))


@lru_cache(maxsize=8)  # called whenever options of the task are validated
def _read(variables: tuple[tuple[str, str], ...]) -> MBPPEnvironment:
    values: dict[str, str | None] = {}
    for name, text in variables:
        field = name.removeprefix(PREFIX).lower()
        if field not in MBPPEnvironment.model_fields:
            close = difflib.get_close_matches(field, MBPPEnvironment.model_fields, n=1, cutoff=0.8)
            if close:  # other names belong to other programs
                raise UserError(f"environment variable {name} does not exist. Did you mean {PREFIX}{close[0].upper()}?")
            continue
        if text.strip().lower() not in _OFF:
            values[field] = text.strip()
        elif field == "eval_interval_steps":
            values[field] = None
    try:
        read = MBPPEnvironment.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = PREFIX + str(problem["loc"][0]).upper()
        raise UserError(f"environment variable {name}={problem['input']!r}: {problem['msg']}.") from None
    if not read.safe_execution:
        raise UserError(
            f"environment variable {PREFIX}SAFE_EXECUTION=false: programs always run in the sandbox. Unset it; "
            "a machine without isolation can be allowed with GRPO_SANDBOX_ALLOW_WEAK=1."
        )
    return read
