"""The observers of a run: the event log, the configured trackers and the monitor."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from grpo_core.config.layers import DEFAULT, Source
from grpo_core.tracking.base import Mode
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET
from grpo_core.tracking.events import EventLog
from grpo_core.tracking.monitor import Monitor
from grpo_core.tracking.sending import TrackerCallback
from grpo_core.tracking.wandb import choose_mode
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry

if TYPE_CHECKING:
    from grpo_core.config import RunConfig

EXTRAS = ("aim", "clearml", "comet_ml", "mlflow", "swanlab", "tensorboard", "trackio", "wandb")
"""Built-in trackers; each has the name of its package and of the extra of grpo-core that installs it."""


def observe(
    config: RunConfig,
    callbacks: Sequence[Callback],
    resources: ExitStack,
    sources: Mapping[str, Source | str] | None = None,
    *,
    branches: bool = False,
) -> tuple[Callbacks, list[ResolvedDefault]]:
    """Add the event log, the trackers and the monitor to a run's callbacks; they get its folder when it starts.

    Args:
        config: Resolved configuration of the run.
        callbacks: The caller's callbacks.
        resources: Closes the observers with the error that ended the run, if any.
        sources: Dotted key -> source of its value, for the event log.
        branches: Whether the steps of a resumed run that are done again may differ from what they were.

    Returns:
        The caller's callbacks with the built-in ones behind them, and the values chosen for the user, with reasons.

    Raises:
        UserError: a tracker's package is not installed, or W&B is to be online without a key.
        UnknownNameError: no such tracker, or no such mode of W&B.
    """
    observers = Callbacks(callbacks)
    log = EventLog({key: str(source) for key, source in (sources or {}).items() if source != DEFAULT})
    trackers: list[TrackerCallback] = []
    choices: list[ResolvedDefault] = []
    check_trackers(config.tracking.trackers)
    for name in config.tracking.trackers:
        mode: Mode = "online"
        if name == "wandb":
            mode, why = choose_mode(config.tracking.wandb_mode, offline=bool(config.offline))
            choices.append(ResolvedDefault("wandb", mode, why))
        trackers.append(TrackerCallback(config, name, mode, observers.on_warning, branches=branches))
    observers.add(log, *trackers)
    if config.tracking.monitor:
        target = kl_target(config.trainer.kl_controller, config.trainer.kl_controller_args)
        observers.add(Monitor(config, observers, kl_target=target))

    def close(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        for tracker in trackers:
            tracker.close(failed=error is not None)
        log.close(error)
        return False

    resources.push(close)
    return observers, choices


def kl_target(controller: str, arguments: Mapping[str, Any]) -> float:
    """Return the KL per token that a controller steers to, in nats; without a target, the monitor's default.

    Args:
        controller: `trainer.kl_controller`.
        arguments: `trainer.kl_controller_args`.

    Raises:
        UserError: no such controller, or an argument that it does not take.
    """
    if "target" not in registry.arguments("kl_controller", controller):
        return DEFAULT_KL_TARGET
    known = registry.validate_arguments("kl_controller", controller, arguments, "trainer.kl_controller_args")
    return float(known["target"])


def check_trackers(names: Sequence[str]) -> None:
    """Check that trackers exist and that their packages are installed.

    Raises:
        UserError: a tracker's package is not installed.
        UnknownNameError: no such tracker.
    """
    for name in names:
        registry.check("tracker", name)
        if name in EXTRAS and importlib.util.find_spec(name) is None:
            raise UserError(
                f"tracking.trackers: {name} needs the package {name}, which is not installed: "
                f"pip install 'grpo-core[{name}]'"
            )
