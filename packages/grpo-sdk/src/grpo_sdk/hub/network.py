"""Whether the hub can be used: asked once, quickly, and then the same for every library of this process."""

from __future__ import annotations

import os
import socket
import sys
import urllib.parse
from functools import cache
from threading import Thread

from grpo_sdk.errors import UserError

TIMEOUT_S = 3.0
"""For name and connection together: a server that needs longer would hold up every start of a run."""

HUB = "https://huggingface.co"

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
"""By which huggingface_hub, transformers and datasets are told, when they are imported."""

_TRUE = {"1", "on", "yes", "true"}


def is_reachable(url: str) -> bool:
    """Whether a connection to a server, or to the proxy before it, can be opened within `TIMEOUT_S`."""
    import urllib.request  # loads http and ssl, which no worker needs

    answers: list[bool] = []

    def connect() -> None:
        try:
            target = urllib.parse.urlsplit(url)
            proxies = urllib.request.getproxies()
            if target.scheme in proxies and not urllib.request.proxy_bypass(target.hostname or ""):
                target = urllib.parse.urlsplit(proxies[target.scheme])
            port = target.port or (80 if target.scheme == "http" else 443)
            with socket.create_connection((target.hostname or "", port), TIMEOUT_S):
                answers.append(True)
        except (OSError, ValueError):  # ValueError: no address, or a port that is none
            answers.append(False)

    # A thread, because no timeout bounds the look-up of a name.
    thread = Thread(target=connect, name="is_reachable", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return bool(answers) and answers[0]


def offline_reason() -> str:
    """Why the hub is not used; empty where it is. The first call finds out, and tells the libraries."""
    if _reasons:
        return _reasons[-1]
    for variable in VARIABLES:
        if os.environ.get(variable, "").lower() in _TRUE:
            return f"{variable}={os.environ[variable]}"
    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    if _is_reachable(endpoint):
        return ""
    go_offline(f"{_host(endpoint)} cannot be reached")
    return _reasons[-1]


def prepare(*, offline: bool) -> None:
    """Go offline where that is asked for, and check `HF_ENDPOINT`: huggingface_hub cannot be imported with a bad one.

    Args:
        offline: The setting `offline`.

    Raises:
        UserError: `HF_ENDPOINT` is no address; a run without the hub needs the import, too.
    """
    if offline:
        go_offline("offline=true")
    endpoint = os.environ.get("HF_ENDPOINT", "")
    try:
        urllib.parse.urlsplit(endpoint)
    except ValueError as error:
        raise UserError(
            f"HF_ENDPOINT={endpoint[:80]!r} is no address of a server ({error}): unset it, or give one as {HUB}."
        ) from None


def _host(endpoint: str) -> str:
    """The server of an address; where there is none, the address, which the user has set."""
    try:
        host = urllib.parse.urlsplit(endpoint).hostname
    except ValueError:
        host = None
    return host or f"HF_ENDPOINT={endpoint[:80]!r}, which is no address of a server,"


def go_offline(why: str) -> None:
    """Have every library use what is in the cache, and nothing else.

    Args:
        why: The reason that `offline_reason` gives from now on.
    """
    _reasons.append(why)
    for variable in VARIABLES:
        os.environ[variable] = "1"
    # Both have read their variable when they were imported.
    if (hub := sys.modules.get("huggingface_hub.constants")) is not None:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    if (data := sys.modules.get("datasets.config")) is not None:
        data.HF_DATASETS_OFFLINE = data.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


_reasons: list[str] = []

_is_reachable = cache(is_reachable)
