"""Ranks whose accelerators recommend different settings take the smallest sizes, or say what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from grpo_core.config import ResolvedConfig, flatten, load_config, resolve
from grpo_core.errors import UserError
from grpo_core.policy.ranks import Ranks
from grpo_core.profiles.accelerator import GIB, Accelerator
from grpo_core.training.rank_config import agreed

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
A100 = Accelerator("cuda", "NVIDIA A100-SXM4-80GB", int(79.3 * GIB), "8.0")
RTX = Accelerator("cuda", "NVIDIA GeForce RTX 4080", int(15.7 * GIB), "8.9")
T4 = Accelerator("cuda", "Tesla T4", int(14.6 * GIB), "7.5")


@dataclass(frozen=True, slots=True)
class Recorded(Ranks):
    """Ranks of which the others have already spoken."""

    others: tuple[bytes, ...] = ()

    def gather(self, data: bytes) -> list[bytes]:
        return [data, *self.others]


def on(monkeypatch: pytest.MonkeyPatch, accelerator: Accelerator, **given: Any) -> ResolvedConfig:
    monkeypatch.setattr("grpo_core.profiles.accelerator.detect", lambda device="auto": accelerator)
    settings = {name.replace("__", "."): value for name, value in given.items()}
    loaded = load_config({"model": MODEL, "lora.enabled": True, **settings}, environ={}, dotenv_path=None)
    return resolve(loaded.config, loaded.sources)


def said(config: ResolvedConfig, accelerator: Accelerator) -> bytes:
    recommended = [key for key, source in config.sources.items() if source.kind in ("profile", "default")]
    return orjson.dumps({"accelerator": str(accelerator), "values": flatten(config.config), "recommended": recommended})


def together(
    monkeypatch: pytest.MonkeyPatch, first: Accelerator, *others: Accelerator, **given: Any
) -> tuple[list[ResolvedConfig], ResolvedConfig]:
    """What each resolves by itself, and what the first one then uses."""
    alone = [on(monkeypatch, each, **given) for each in (first, *others)]
    told = tuple(said(config, each) for config, each in zip(alone[1:], others, strict=True))
    monkeypatch.setattr("grpo_core.profiles.accelerator.detect", lambda device="auto": first)
    return alone, agreed(alone[0], Recorded(size=len(alone), others=told))


def test_the_smallest_sizes_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    (large, small), config = together(monkeypatch, A100, RTX)
    assert large.config.engine.max_batch_tokens > small.config.engine.max_batch_tokens
    assert flatten(config.config) == flatten(small.config)
    source = config.sources["engine.max_batch_tokens"]
    why = "the smallest that fits every rank: NVIDIA A100-SXM4-80GB, 79.3 GiB, compute capability 8.0 on rank 0; "
    assert source.kind == "profile" and source.where.startswith(why)
    choice = config.choices[-1]
    assert choice.what == "settings"
    assert f"engine.max_batch_tokens={small.config.engine.max_batch_tokens}" in choice.value
    assert choice.why.endswith("NVIDIA GeForce RTX 4080, 15.7 GiB, compute capability 8.9 on rank 1")
    assert agreed(small, Recorded(size=2, others=(said(large, A100),))).config == config.config, "in any order"


def test_equal_ranks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, _, _), config = together(monkeypatch, A100, A100, A100)
    assert config is first


def test_precisions_that_differ_are_refused_by_all_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (
        r"precision is another one on each kind of rank: bfloat16 \(NVIDIA A100.*8\.0\) on ranks 0, 2; "
        r"float16 \(Tesla T4.*7\.5\) on rank 1\. Set one for all: precision=float16\."
    )
    with pytest.raises(UserError, match=expected):
        together(monkeypatch, A100, T4, A100)
    (_, small), config = together(monkeypatch, A100, T4, precision="float16")
    assert flatten(config.config) == flatten(small.config)


def test_what_was_set_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = on(monkeypatch, A100, trainer__micro_batch_tokens=4096)
    other = on(monkeypatch, A100, trainer__micro_batch_tokens=2048)
    with pytest.raises(UserError, match=r"trainer\.micro_batch_tokens .* 4096 .* on rank 0; 2048 .* on rank 1\. Set"):
        agreed(alone, Recorded(size=2, others=(said(other, A100),)))


def test_a_rank_looks_at_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from grpo_core.profiles.accelerator import detect

    class Properties:
        def __init__(self, index: int) -> None:
            self.name, self.total_memory, self.major, self.minor = f"gpu {index}", GIB, 8, 0

    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    assert detect("cuda:1").name == "gpu 1"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert detect("cuda:1").name == "gpu 1", "a single process"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (detect("auto").name, detect("cuda:1").name) == ("gpu 3", "gpu 3")
