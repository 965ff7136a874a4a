"""Repeats forward and backward passes in smaller parts when memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

import orjson
import torch
from torch import Tensor

from grpo_core.config import TrainerConfig
from grpo_core.policy.memory import OutOfMemoryError, is_out_of_memory, release
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.threads import computing_with
from grpo_core.training.pass_limits import PassLimits, PassSize
from grpo_sdk.errors import first_line

_Result = TypeVar("_Result")


class HalvedPasses:
    """How large passes may be: halved when memory runs out, and never larger again.

    Args:
        limits: The limits at the start.
        device: Device of the model.
        warn: Receives one warning.
        what: What the passes are for, in messages.

    Attributes:
        limits: The limits.
        running: Size of the pass that runs, or was the last to run.
        make_room: Frees memory that others keep only to be faster; False if there is none.
    """

    advice = "Use a smaller model."
    """What helps where not even one completion fits."""

    def __init__(self, limits: PassLimits, device: torch.device, warn: Callable[[str], None], what: str) -> None:
        self.limits = self._initial = limits
        self.running: PassSize | None = None
        self.make_room: Callable[[], bool] = lambda: False
        self._device, self._warn, self._what = device, warn, what

    def until_it_fits(self, work: Callable[[], _Result], undo: Callable[[], None] = lambda: None) -> _Result:
        """Do some passes; if memory runs out, undo them, make room or halve the limits, and do all of them again.

        Dropout draws the same numbers each time. Nothing may be exchanged with other ranks inside: they do not repeat.

        Args:
            work: Runs passes, and says the size of each by `running`.
            undo: Removes what unfinished work left behind.

        Raises:
            OutOfMemoryError: a single completion does not fit, or passes cannot be made smaller in this run.
        """
        randomness = self._random_state()
        while True:
            self.running = None
            try:
                return work()
            except Exception as error:
                if self.running is None or not is_out_of_memory(error):
                    raise
                if not self.make_room():
                    self._halve(self.running, error)
            undo()
            release()  # here, where the exception is gone, whose frames held the tensors of the failed pass
            self._restore_random_state(randomness)

    def _halve(self, failed: PassSize, error: BaseException) -> None:
        if failed.rows == 1:
            what = f"a forward and backward pass does not fit even for one completion ({failed.tokens} tokens)"
            self._give_up(what, self.advice, error)
        halved = self.limits.halved(failed)
        self._check(failed, halved, error)
        self._say(halved, f"in a forward or backward pass of {failed}")
        self.limits = halved

    def _check(self, failed: PassSize, halved: PassLimits, error: BaseException) -> None:
        """Give up where passes cannot be made smaller."""

    def _give_up(self, what: str, advice: str, error: BaseException) -> NoReturn:
        raise OutOfMemoryError(f"out of memory in {self._what}: {what}: {first_line(error)}. {advice}") from None

    def _say(self, limits: PassLimits, where: str) -> None:
        if self.limits == self._initial:  # what follows the first time is said with it
            self._warn(
                f"out of memory {where}: {self._what} goes on with {self._limits_in_words(limits)}, halved again where "
                "needed; the gradient is the same up to rounding"
            )

    def _limits_in_words(self, limits: PassLimits) -> str:
        return f"at most {limits.rows} completions in a pass"

    def _random_state(self) -> tuple[Tensor, Tensor | None]:
        device = self._device
        return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def _restore_random_state(self, state: tuple[Tensor, Tensor | None]) -> None:
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1], self._device)


class PassBudget(HalvedPasses):
    """How large the passes of a run may be.

    Args:
        policy: The model.
        config: The limits at the start.
        ranks: The processes; each halves its own limits.
        warn: Receives one warning.
    """

    advice = (
        "Use trainer.gradient_checkpointing=true, a shorter trainer.max_completion_length, lora.enabled=true, "
        "or a smaller model."
    )

    def __init__(self, policy: Policy, config: TrainerConfig, ranks: Ranks, warn: Callable[[str], None]) -> None:
        super().__init__(PassLimits.of(config), policy.device, warn, "training")
        self._policy, self._config, self._ranks = policy, config, ranks

    def until_it_fits(self, work: Callable[[], _Result], undo: Callable[[], None] = lambda: None) -> _Result:
        """Do some passes with the threads of updates; see `HalvedPasses`."""
        with computing_with(self._policy.update_threads):
            return super().until_it_fits(work, undo)

    def agree(self) -> None:
        """Take the smallest limits of all ranks, so that a checkpoint's are those of each; every rank takes part."""
        if self._ranks.size == 1:
            return
        states = self._ranks.gather(orjson.dumps(self.limits.state()))
        agreed = PassLimits.smallest(PassLimits.from_state(orjson.loads(state)) for state in states)
        if agreed != self.limits:
            self._say(agreed, "on another rank")
        self.limits = agreed

    def _check(self, failed: PassSize, halved: PassLimits, error: BaseException) -> None:
        if self._policy.shards is not None:
            self._give_up(
                f"a pass of {failed} of a sharded model does not fit, and it cannot be repeated, because the other "
                "ranks have done theirs",
                f"Use {halved}, or trainer.gradient_checkpointing=true.",
                error,
            )

    def _limits_in_words(self, limits: PassLimits) -> str:
        if not self._config.gradient_noise_scale or self.limits.prompts is None:
            return str(limits)
        if limits.prompts is None:
            return f"{limits}, which cannot measure the gradient noise scale"
        return f"{limits}, in which the gradient noise scale is measured from the next step on"
