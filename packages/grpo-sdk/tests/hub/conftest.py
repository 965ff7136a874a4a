import functools
from collections.abc import Callable

import pytest

from grpo_sdk.hub import network


@pytest.fixture
def set_hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool], None]:
    """Gives the libraries another hub, or takes it away, until the test's end; no answer is remembered."""
    import datasets.config
    import huggingface_hub.constants as hub

    def set_to(address: str, offline: bool) -> None:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setattr(hub, "ENDPOINT", address)
        monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", address)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", offline)
        for module in (hub, datasets.config):
            monkeypatch.setattr(module, "HF_HUB_OFFLINE", offline)
        for variable in network.VARIABLES:
            monkeypatch.setenv(variable, "1" if offline else "")
        monkeypatch.setattr(network, "_reasons", [])
        monkeypatch.setattr(network, "_is_reachable", functools.cache(network.is_reachable))

    return set_to
