"""What to try against the problems of a run, with its settings."""

from __future__ import annotations

import importlib.util
import math
import shlex

from grpo_core.config.model_profiles import EXAMPLE_MODEL
from grpo_core.tracking.diagnosis import History
from grpo_sdk.plugins.task_objects import PREFIX, is_object
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs

SOLVED = 0.9
"""Solved rate from which on a low entropy or equal rewards are justified: the task is learnt."""

EASY, HARD = 0.8, 0.2
"""Solved rates above and below which a task is too easy or too hard; as `curriculum.boundaries`."""


def warm_start(*words: str) -> str:
    """The command that fine-tunes a model on golds, and what it needs first where that is missing."""
    needed = "" if importlib.util.find_spec("trl") else " (after pip install 'grpo-core[trl]')"
    return " ".join(("grpo warm-start", *map(shlex.quote, words))) + needed


def a_start(task: str) -> str:
    """How to begin with a model that can learn: in Python where a task is an object, which a command may not find."""
    specs = parse_task_specs(task)
    if any(map(is_object, specs)):
        name = specs[0].name.rpartition(":")[2].removeprefix(PREFIX) if len(specs) == 1 else "tasks"
        tune, model = f'grpo_core.warm_start({name}, "./warm", preset="tiny")', f'model="{EXAMPLE_MODEL}"'
    else:
        tune = warm_start("--task", task, "--preset", "tiny", "--out", "./warm")
        if not any(bind(spec).task.default_model for spec in specs):  # which --quick would train as it is
            tune += f", or in one command with the training, grpo run --quick --task {shlex.quote(task)}"
        model = f"--model {EXAMPLE_MODEL}"
    return f"fine-tune a start on the task's golds, {tune}, or name a model that sometimes succeeds: {model}."


def equal_rewards(history: History) -> str:
    """Against groups without differences, by how much is solved."""
    trainer, solved = history.config.trainer, history.value("solved_rate")
    if solved > EASY:
        return f"the task is too easy (solved {solved:.2f}): take harder rows, or set curriculum.enabled=true."
    if history.value("reward_max") == history.value("reward_min"):
        return a_start(history.config.task)
    more = f"raise trainer.num_generations (now {trainer.num_generations})"
    if solved < HARD:
        return (
            f"the task is too hard (solved {solved:.2f}): take easier rows, fine-tune the model first "
            f"({warm_start()}; grpo run --quick does so where it is needed), or {more}."
        )
    also = "" if trainer.dynamic_sampling else ", or set trainer.dynamic_sampling=true"
    return (
        f"completions of a prompt are too alike: raise trainer.temperature (now {trainer.temperature:g}), {more}{also}."
    )


def spec_of(history: History, label: str) -> str:
    """What a command calls a task of the run that logs call by its label: a file has its path."""
    return history.tasks[label].spec if label in history.tasks else label


def equal_rewards_of(history: History, label: str) -> str:
    """Against a task of a mixture whose groups have no differences."""
    solved = history.metrics.get(f"task/{label}/solved_rate", math.nan)
    if solved > EASY:
        return f"lower the weight of {label} in the mixture, or take harder rows of it: it is solved ({solved:.2f})."
    tune = warm_start("--task", spec_of(history, label))
    return (
        f"take easier rows of {label}, fine-tune on its golds first ({tune}), or leave it out of the mixture until the "
        "others are learnt."
    )


def no_gradient(history: History) -> str:
    """Against a gradient of exactly 0."""
    trainer = history.config.trainer
    if trainer.mask_truncated_completions and history.value("completions/truncated_frac") == 1:
        return (
            "every completion is truncated and masked: raise trainer.max_completion_length (now "
            f"{trainer.max_completion_length}), or set trainer.mask_truncated_completions=false."
        )
    return (
        "no token counts in the loss: check trainer.top_entropy_quantile, trainer.rollout_correction, "
        "trainer.off_policy_mask_threshold and the clip trainer.epsilon."
    )


def skipped(history: History) -> str:
    """Against steps that are not finite."""
    config = history.config
    precision = "." if config.precision == "float32" else ", or set precision=float32."
    return f"lower trainer.learning_rate (now {config.trainer.learning_rate:g}){precision}"


def more_diversity(history: History) -> str:
    """Against identical completions."""
    trainer = history.config.trainer
    cut = [
        f"trainer.{name} (now {value:g})"
        for name, value, off in (("top_p", trainer.top_p, 1), ("top_k", trainer.top_k, 0), ("min_p", trainer.min_p, 0))
        if value != off
    ]
    also = f", and relax {' and '.join(cut)}" if cut else ""
    return (
        f"raise trainer.temperature (now {trainer.temperature:g}){also}. If it was fine at the start, the policy has "
        "collapsed: raise trainer.entropy_coef, or lower trainer.learning_rate."
    )


def truncation(history: History) -> str:
    """Against completions that hit the length limit."""
    trainer = history.config.trainer
    masks = "" if trainer.mask_truncated_completions else ", or set trainer.mask_truncated_completions=true"
    return (
        f"raise trainer.max_completion_length (now {trainer.max_completion_length}){masks}. If completions never end, "
        "the model knows no end of a text (a base model), or the task needs a stop string: Task(stop=…)."
    )


def empty(history: History) -> str:
    """Against completions without a text."""
    return (
        "check the prompt's end: a chat model wants messages, a base model a text that goes on. A stop string of the "
        "task that the answer begins with ends it, too; grpo sample --model MODEL shows prompt and completions."
    )


def less_kl(history: History) -> str:
    """Against a policy that is far from its start."""
    trainer = history.config.trainer
    rate = f"lower trainer.learning_rate (now {trainer.learning_rate:g})"
    if not trainer.beta:
        return f"{rate}, or set trainer.beta=0.05."
    if trainer.kl_controller in ("constant", "decay"):
        return f"{rate}, raise trainer.beta (now {trainer.beta:g}), or set trainer.kl_controller=step_rule."
    return f"{rate}: the controller {trainer.kl_controller} cannot hold it."


def more_entropy(history: History) -> str:
    """Against a policy that is too sure."""
    trainer = history.config.trainer
    if trainer.entropy_coef:
        return f"raise trainer.entropy_coef (now {trainer.entropy_coef:g}), or lower trainer.learning_rate."
    return (
        "set trainer.entropy_coef=0.001, raise trainer.epsilon_high (0.28 is DAPO's), or lower trainer.learning_rate "
        f"(now {trainer.learning_rate:g})."
    )


def spikes(history: History) -> str:
    """Against single steps with a very large gradient."""
    trainer = history.config.trainer
    scale = ", or set trainer.scale_rewards=group" if trainer.scale_rewards != "group" else ""
    return (
        f"look for extreme rewards of that step: grpo rollouts RUN --step {history.step}. Bound the reward{scale}; "
        f"lower trainer.max_grad_norm (now {trainer.max_grad_norm:g}) if spikes keep coming."
    )


def less_clipping(history: History) -> str:
    """Against updates that move too far within a batch."""
    trainer = history.config.trainer
    passes = f"trainer.num_iterations (now {trainer.num_iterations})"
    return f"lower trainer.learning_rate (now {trainer.learning_rate:g}) or {passes}."


def fewer_passes(history: History) -> str:
    """Against updates that change nothing within a batch."""
    trainer = history.config.trainer
    names = ("num_iterations", "steps_per_generation")
    several = " and ".join(f"trainer.{name}=1" for name in names if getattr(trainer, name) > 1)
    return f"raise trainer.learning_rate (now {trainer.learning_rate:g}), or save the time: {several}."


def unfilled(history: History) -> str:
    """Against groups that dynamic sampling cannot replace."""
    attempts = history.config.trainer.dynamic_sampling_attempts
    return (
        f"take rows of the right difficulty (curriculum.enabled=true prefers them), or raise "
        f"trainer.dynamic_sampling_attempts (now {attempts}), which samples more."
    )
