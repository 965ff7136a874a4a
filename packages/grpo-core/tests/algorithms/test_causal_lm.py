"""The parts of a model, in the versions of transformers that are allowed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm
from grpo_core.policy.fresh import fresh_model


class _Newer(nn.Module):
    def forward(self, input_ids: Tensor, *, cache: Cache | None = None, use_cache: bool = False) -> tuple[Any, ...]:
        return cache, use_cache


class _Older(nn.Module):
    def forward(self, input_ids: Tensor, past_key_values: Cache | None = None, **options: Any) -> tuple[Any, ...]:
        return past_key_values, options["use_cache"]


@pytest.mark.parametrize("body", [_Newer(), _Older()], ids=["cache", "past_key_values"])
def test_the_cache_is_given_by_the_name_that_the_version_knows(body: nn.Module) -> None:
    cache: Any = DynamicCache()
    parts = CausalLM(model=fresh_model("tiny", 0)[0], body=body, head=nn.Identity())
    assert parts.hidden(torch.zeros(1, 2, dtype=torch.long), cache=cache) is cache


def test_a_model_knows_whether_it_is_checkpointed() -> None:
    model = fresh_model("tiny", 0)[0]
    parts = causal_lm(model)
    assert not parts.is_checkpointed
    model.base_model.gradient_checkpointing = True
    assert parts.is_checkpointed
    model.base_model.gradient_checkpointing = False
    assert not parts.is_checkpointed
