"""A frozen base in 4 bits, on which an adapter is trained (QLoRA, arXiv 2305.14314), in bitsandbytes' blocks of 64.

Products are computed from dequantized weights, in the policy's precision; embeddings, norms and the output
embedding stay as they are, so that log-probs are read off a plain weight.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import torch

from grpo_core.checkpoints import read_json, write_json
from grpo_core.config import LoraConfig
from grpo_sdk.errors import UserError

QUANTIZATION_FILE = "base_quantization.json"
"""Beside an adapter that was trained on a quantized base: on the plain one it would be another model."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a base is quantized.

    Attributes:
        kind: "nf4": 16 levels at the quantiles of a normal distribution.
        double: Whether the blocks' scales are quantized in turn, which saves 0.4 bits a weight.
    """

    kind: str
    double: bool

    @classmethod
    def of(cls, lora: LoraConfig | None, adapter: str | None) -> Quantization | None:
        """The quantization that a configuration asks for, unless a local adapter says what it was trained on."""
        if adapter is not None and (path := Path(adapter).expanduser() / QUANTIZATION_FILE).is_file():
            return cls(**_checked(path, read_json(path, "the adapter's base quantization")))
        if lora is None or lora.quantization is None:
            return None
        return cls(lora.quantization, lora.double_quantization)

    def save(self, folder: Path) -> None:
        """Write it beside an adapter."""
        write_json(folder / QUANTIZATION_FILE, asdict(self))

    def loading(self, compute: torch.dtype, where: torch.device) -> dict[str, Any]:
        """Arguments of `from_pretrained`.

        Args:
            compute: Type of the products.
            where: The device; weights are quantized there, so that the whole model is nowhere.

        Raises:
            UserError: bitsandbytes is missing.
        """
        quiet_bitsandbytes()
        try:
            import bitsandbytes  # noqa: F401 - transformers reports its absence without saying what to install
        except ImportError:
            raise UserError(
                f"lora.quantization={self.kind} needs the package bitsandbytes: pip install 'grpo-core[qlora]'."
            ) from None
        from transformers import BitsAndBytesConfig

        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=self.kind,
            bnb_4bit_use_double_quant=self.double,
            bnb_4bit_compute_dtype=compute,
        )
        return {"quantization_config": config, "device_map": {"": str(where)}}

    def __str__(self) -> str:
        return f"{self.kind}, double" if self.double else self.kind


def quiet_bitsandbytes() -> None:
    """Keep it from reporting, on some CPUs, that an optional kernel is missing; PEFT imports it wherever it is."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def keep_as_quantized(model: Any) -> None:
    """Keep bitsandbytes from packing weights anew in the first pass without gradient, as it does on some CPUs.

    Scales would be rounded to bfloat16, so that the base that samples is another than the one trained on.
    """
    from bitsandbytes.nn.modules import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def dequantized(model: Any) -> Any:
    """A plain model with the weights that the quantized one computes with: what an adapter was trained on."""
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn.modules import Params4bit

    weights = {
        name: dequantize_4bit(weight.data, weight.quant_state) if isinstance(weight, Params4bit) else weight.data
        for name, weight in model.named_parameters(remove_duplicate=False)
    }
    return plain_model(model, weights)


def plain_model(model: Any, weights: Mapping[str, torch.Tensor]) -> Any:
    """A model of the same configuration without quantization, which save_pretrained and a merge would refuse."""
    from transformers import AutoConfig, AutoModelForCausalLM

    facts = model.config.to_dict()
    facts.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(**facts), dtype=model.dtype)
    missing, unexpected = plain.load_state_dict(weights, strict=False)  # strict would ask for buffers, too
    unset = {name for name, _ in plain.named_parameters()}.intersection(missing)
    assert not unset and not unexpected, f"not of this model: {unset} {unexpected}"
    plain.generation_config = model.generation_config
    return plain


def _checked(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    if set(facts) != {"kind", "double"} or facts["kind"] != "nf4" or not isinstance(facts["double"], bool):
        raise UserError(
            f"{path} says {orjson.dumps(facts).decode():.120}, and this version knows only "
            '{"kind": "nf4", "double": true or false}. It is of a newer version, or damaged.'
        )
    return dict(facts)
