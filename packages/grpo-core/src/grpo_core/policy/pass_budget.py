"""How much is computed at once: halved when memory runs out, said once, and never larger again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import orjson
import torch

from grpo_core.config import TrainerConfig
from grpo_core.policy.memory import OutOfMemoryError, is_out_of_memory, release
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import CPU, Ranks
from grpo_core.policy.threads import computing_with
from grpo_sdk.errors import first_line

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class PassSize:
    """Size of one forward pass.

    Attributes:
        rows: Completions.
        tokens: Tokens, padding included, as `trainer.micro_batch_tokens` counts them.
        prompts: Prompts.
    """

    rows: int
    tokens: int
    prompts: int

    def __str__(self) -> str:
        return f"{self.rows} completion{'s' * (self.rows != 1)} ({self.tokens} tokens)"


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Upper limit of a forward pass: by prompts if they are given, else by completions, else by tokens.

    Attributes:
        rows: Completions.
        tokens: Tokens, padding included.
        prompts: Whole prompts, as drawn.
    """

    rows: int | None
    tokens: int
    prompts: int | None

    @classmethod
    def of(cls, config: TrainerConfig) -> PassLimits:
        """The limits that a configuration sets."""
        return cls(config.rows_per_pass, config.micro_batch_tokens, config.micro_batch_prompts)

    @classmethod
    def smallest(cls, limits: Iterable[PassLimits]) -> PassLimits:
        """The limits that satisfy all of the given ones."""
        several = list(limits)
        prompts = [limit.prompts for limit in several if limit.prompts is not None]
        rows = [limit.rows for limit in several if limit.rows is not None]
        return cls(
            rows=min(rows, default=None),
            tokens=min(limit.tokens for limit in several),
            prompts=min(prompts) if len(prompts) == len(several) else None,
        )

    def halved(self, failed: PassSize) -> PassLimits:
        """Half of a pass that did not fit, which has more than one completion, in the unit of the limit."""
        if self.prompts is not None and failed.prompts > 1:
            return PassLimits(self.rows, self.tokens, min(self.prompts, failed.prompts) // 2)
        if self.prompts is not None or self.rows is not None:  # a single prompt is cut into its completions
            rows = failed.rows if self.rows is None else min(self.rows, failed.rows)
            return PassLimits(rows // 2, self.tokens, None)
        return PassLimits(None, max(1, min(self.tokens, failed.tokens) // 2), None)

    def __str__(self) -> str:
        if self.prompts is not None:
            return f"trainer.micro_batch_prompts={self.prompts}"
        if self.rows is not None:
            return f"trainer.micro_batch_size={self.rows}"
        return f"trainer.micro_batch_tokens={self.tokens}"


class PassBudget:
    """How large passes may be.

    Args:
        limits: The limits at the start.
        what: What the passes are for, in messages.
        advice: What helps where not even one completion fits.
        warn: Receives one warning.
        device: Device of the model.

    Attributes:
        limits: The limits.
        running: Size of the pass that runs, or was the last to run.
        make_room: Frees memory that others keep only to be faster; False if there is none.
    """

    unchanged = "the gradient is the same up to rounding"
    """What smaller passes do not change."""

    def __init__(
        self,
        limits: PassLimits,
        what: str,
        advice: str,
        warn: Callable[[str], None] = lambda message: None,
        device: torch.device = CPU,
    ) -> None:
        self.limits = self._initial = limits
        self.running: PassSize | None = None
        self.make_room: Callable[[], bool] = lambda: False
        self._what, self._advice, self._warn, self._device = what, advice, warn, device

    def until_it_fits(self, work: Callable[[], _Result], undo: Callable[[], None] = lambda: None) -> _Result:
        """Do some passes; if memory runs out, undo them, make room or halve the limits, and do all of them again.

        Dropout draws the same numbers each time. Nothing may be exchanged with other ranks inside: they do not repeat.

        Args:
            work: Runs passes, and says the size of each by `running`.
            undo: Removes what unfinished work left behind.

        Raises:
            OutOfMemoryError: a single completion does not fit, or passes cannot be made smaller in this run.
        """
        randomness = torch.get_rng_state()
        on_cuda = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None
        while True:
            self.running = None
            try:
                return work()
            except Exception as error:
                if self.running is None or not is_out_of_memory(error):
                    raise
                if not self.make_room():
                    self.halve(self.running, error)
            undo()
            release()  # here, where the exception is gone, whose frames held the tensors of the failed pass
            torch.set_rng_state(randomness)
            if on_cuda is not None:
                torch.cuda.set_rng_state(on_cuda, self._device)

    def halve(self, failed: PassSize, error: BaseException) -> None:
        """Halve the limits after a pass did not fit.

        Raises:
            OutOfMemoryError: it had one completion, so that nothing smaller can be tried.
        """
        if failed.rows == 1:
            self._give_up(f"a pass does not fit even for one completion ({failed.tokens} tokens)", self._advice, error)
        halved = self.limits.halved(failed)
        self._say(halved, f"in a pass of {failed}")
        self.limits = halved

    def _give_up(self, what: str, advice: str, error: BaseException) -> NoReturn:
        raise OutOfMemoryError(f"out of memory in {self._what}: {what}: {first_line(error)}. {advice}") from None

    def _say(self, limits: PassLimits, where: str) -> None:
        if self.limits == self._initial:  # what follows the first time is said with it
            self._warn(
                f"out of memory {where}: {self._what} goes on with {self._in_words(limits)}, halved again where "
                f"needed; {self.unchanged}"
            )

    def _in_words(self, limits: PassLimits) -> str:
        many = f"{limits.tokens} tokens" if limits.rows is None else f"{limits.rows} completions"
        return f"at most {many} in a pass"


class InferenceBudget(PassBudget):
    """How many tokens a pass without gradient may have.

    Args:
        tokens: Tokens at the start, padding included.
        what: What the passes are for, in messages.
        warn: Receives one warning.
    """

    unchanged = "the results do not depend on it"

    def __init__(self, tokens: int, what: str, warn: Callable[[str], None] = lambda message: None) -> None:
        advice = "Lower eval.max_completion_length, or use a smaller model or precision=bfloat16."
        super().__init__(PassLimits(None, tokens, None), what, advice, warn)

    @property
    def tokens(self) -> int:
        """At most so many at once."""
        return self.limits.tokens


class TrainingBudget(PassBudget):
    """How large the passes of a run may be.

    Args:
        policy: The model.
        config: The limits at the start.
        ranks: The processes; each halves its own limits.
        warn: Receives one warning.
    """

    def __init__(self, policy: Policy, config: TrainerConfig, ranks: Ranks, warn: Callable[[str], None]) -> None:
        advice = (
            "Use trainer.gradient_checkpointing=true, a shorter trainer.max_completion_length, lora.enabled=true, "
            "or a smaller model."
        )
        super().__init__(PassLimits.of(config), "training", advice, warn, policy.device)
        self._policy, self._config, self._ranks = policy, config, ranks

    def until_it_fits(self, work: Callable[[], _Result], undo: Callable[[], None] = lambda: None) -> _Result:
        """Do some passes with the threads of updates; see `PassBudget`."""
        with computing_with(self._policy.update_threads):
            return super().until_it_fits(work, undo)

    def halve(self, failed: PassSize, error: BaseException) -> None:
        """Halve the limits of this rank, unless the model is sharded: the other ranks have done their passes."""
        if self._policy.shards is not None and failed.rows > 1:
            self._give_up(
                f"a pass of {failed} of a sharded model does not fit, and it cannot be repeated, because the other "
                "ranks have done theirs",
                f"Use {self.limits.halved(failed)}, or trainer.gradient_checkpointing=true.",
                error,
            )
        super().halve(failed, error)

    def agree(self) -> None:
        """Take the smallest limits of all ranks, so that a checkpoint's are those of each; every rank takes part."""
        if self._ranks.size == 1:
            return
        gathered = self._ranks.gather(orjson.dumps(self.limits))
        agreed = PassLimits.smallest(PassLimits(**orjson.loads(limits)) for limits in gathered)
        if agreed != self.limits:
            self._say(agreed, "on another rank")
        self.limits = agreed

    def _in_words(self, limits: PassLimits) -> str:
        if not self._config.gradient_noise_scale or self.limits.prompts is None:
            return str(limits)
        if limits.prompts is None:
            return f"{limits}, which cannot measure the gradient noise scale"
        return f"{limits}, in which the gradient noise scale is measured from the next step on"
