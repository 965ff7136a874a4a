"""What a baseline says about itself to the trainer and to the checks of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Tensor])


def baseline(
    *, needs_group: bool, per_token: bool = False, scales_itself: bool = False
) -> Callable[[Function], Function]:
    """Mark a function that turns rewards into advantages.

    Args:
        needs_group: Alone in its group, a completion has nothing to be compared with and gets advantage 0.
        per_token: The advantages are [N, T], not [N].
        scales_itself: They are normalised already: dividing by a deviation would do it twice.
    """

    def mark(function: Function) -> Function:
        function.needs_group, function.per_token = needs_group, per_token  # type: ignore[attr-defined] # takes any
        function.scales_itself = scales_itself  # type: ignore[attr-defined] # a function takes any attribute
        return function

    return mark
