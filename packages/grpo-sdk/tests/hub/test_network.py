"""The hub is asked for once, within seconds, and a machine without it uses the cache and says so."""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_hub import cache_repository
from local_servers import Handler, listening
from resumed_runs import TASKS

from grpo_core.config import RunConfig, resolve
from grpo_core.tracking.wandb import choose_mode
from grpo_sdk.errors import UserError
from grpo_sdk.hub import network
from grpo_sdk.hub.cache import cached_models, is_cached, why_from_cache
from grpo_sdk.hub.network import VARIABLES, go_offline, is_reachable, offline_reason
from grpo_sdk.plugins.models import check_model

SetHub = Callable[[str, bool], None]


@pytest.fixture(autouse=True)
def fresh(set_hub: SetHub) -> None:
    """No answer is remembered, and no library stays told after the test."""
    set_hub("", False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one whole model and one without weights."""
    files = {"config.json": "{}", "tokenizer.json": "{}"}
    cache_repository(tmp_path / "models--some--part", files)
    cache_repository(tmp_path / "models--some--whole", {**files, "model.safetensors": "{}"})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def closed_port(set_hub: SetHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    set_hub(address, False)


def test_a_hub_is_asked_once_and_every_library_told_that_it_does_not_answer(set_hub: SetHub) -> None:
    import datasets.config
    import huggingface_hub

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        set_hub(address, False)
        assert offline_reason() == ""
    assert offline_reason() == "", "asked once"
    set_hub(address, False)
    assert [offline_reason() for _ in range(2)] == ["127.0.0.1 cannot be reached"] * 2
    assert {os.environ[variable] for variable in VARIABLES} == {"1"}
    assert huggingface_hub.is_offline_mode()
    assert datasets.config.HF_DATASETS_OFFLINE


def test_a_name_that_nobody_resolves_takes_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def never(*_: object, **__: object) -> None:
        is_over.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(network, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    started = time.monotonic()
    assert not is_reachable("https://hub.example")
    assert time.monotonic() - started < 20
    is_over.set()


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_of_the_libraries_is_enough(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setattr(network, "_is_reachable", pytest.fail)
    monkeypatch.setenv(variable, "1")
    assert offline_reason() == f"{variable}=1"


def test_a_setting_is_enough(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(network, "_is_reachable", pytest.fail)
    resolve(RunConfig(model="tiny", offline=True))
    assert offline_reason() == why_from_cache("some/whole") == "offline=true"
    mode, why = choose_mode(None, {"WANDB_API_KEY": "x"}, offline=True)
    assert mode == "offline" and why.startswith("offline=true")


def test_what_is_not_in_the_cache_is_refused_with_what_is(closed_port: None, cache: Path, monkeypatch: Any) -> None:
    assert cached_models() == ["some/whole"]
    assert is_cached("some/whole") and not is_cached("some/part")
    with pytest.raises(UserError, match=r"some/part is not.*cache.*cannot.*has some/whole.*grpo fetch some/part"):
        why_from_cache("some/part")
    (cache / "training_runs/warm").mkdir(parents=True)
    monkeypatch.chdir(cache)
    with pytest.raises(UserError, match=r"for the folder of that name write \./training_runs/warm"):
        why_from_cache("training_runs/warm")
    go_offline("the test says so")
    assert why_from_cache("some/whole") == "the test says so"


def test_a_run_that_names_no_model_takes_one_from_the_cache(closed_port: None, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASKS)
    resolved = resolve(RunConfig(task=f"{tmp_path / 'mine.py'}:letters"))
    assert resolved.config.model == "some/whole"
    assert "127.0.0.1 cannot be reached" in str(resolved.sources["model"])


@pytest.mark.parametrize(("status", "code", "message"), [
    (404, "RepoNotFound", "the hub has no such repository, or it is private"),
    (403, "GatedRepo", "is gated: accept its terms on the hub"),
    (404, "EntryNotFound", "the repository has no config.json"),
])  # fmt: skip
def test_a_model_that_the_hub_does_not_have_is_refused_by_its_config_alone(status, code, message, cache, set_hub):
    class Hub(Handler):
        def do_HEAD(self) -> None:
            self.reply(status, b"", **{"X-Error-Code": code, "X-Repo-Commit": "0" * 40})

    with listening(Hub) as address:
        set_hub(address, False)
        with pytest.raises(UserError, match=message):
            check_model("some/other")
        check_model("some/whole")  # from the cache: the hub is not asked


@pytest.mark.parametrize("endpoint", ["not a url", "http://[::1", "http://", "[" * 1000])
def test_an_endpoint_that_is_no_address_is_said(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    reason = offline_reason()
    assert reason.startswith("HF_ENDPOINT='") and "is no address of a server, cannot be reached" in reason
    assert len(reason) < 200
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"http": endpoint})
    monkeypatch.setattr("urllib.request.proxy_bypass", lambda host: False)
    assert not is_reachable("http://127.0.0.1:1"), "a proxy that is no address is none that answers"
