"""The table of docs/how-to/adapters.md is what happens: every kind of adapter is taken through runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from adapter_kinds import KINDS, adapter, base_model, outcome, ties
from peft import PeftType

from grpo_core.config import LoraConfig
from grpo_core.policy.load import load_policy
from grpo_sdk.errors import UserError

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "adapters.md"
pytestmark = [  # PEFT warns about adapters of embeddings and of biases
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers` to `True`:UserWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]


def rows() -> dict[str, dict[str, str]]:
    """The page's table: kind -> column -> cell."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if "|" in line
    ]
    start = next(index for index, row in enumerate(cells) if row[0] == "kind")
    head, *body = cells[start], *cells[start + 2 :]
    return {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in body}


def test_the_page_has_every_kind() -> None:
    assert list(rows()) == [*KINDS, "another `peft_type`"]


@pytest.mark.parametrize("kind", ["PiSSA", "embeddings, tied", "output layer", "aLoRA", "PiSSA, randomized"])
def test_a_kind_does_what_its_row_says(kind: str, tmp_path: Path) -> None:
    assert outcome(kind, tmp_path, tied=True) == rows()[kind]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tied"), [(kind, tied) for kind in KINDS for tied in ties(kind)])
def test_every_kind_does_what_its_row_says(kind: str, tied: bool, tmp_path: Path) -> None:
    assert outcome(kind, tmp_path, tied=tied) == rows()[kind]


def test_every_other_type_is_refused_before_its_base_is_read(tmp_path: Path) -> None:
    base = base_model(tmp_path / "base", tied=True)
    saved = adapter(base, tmp_path / "adapter", "LoRA")
    (base / "model.safetensors").unlink()
    path = saved / "adapter_config.json"
    for each in PeftType:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"peft_type": each.value}))
        with pytest.raises(
            UserError, match="model.safetensors" if each == PeftType.LORA else "LORA is what is trained"
        ):
            load_policy(str(base), adapter=str(saved), device="cpu")
    assert set(rows()["another `peft_type`"].values()) == {"refused"}


@pytest.mark.parametrize(("kind", "quantization", "said"), [
    ("PiSSA", "nf4", "init_lora_weights='pissa'"),
    ("OLoRA", "nf4", "init_lora_weights='olora'"),
    ("bias of the adapter", None, "lora_bias=True"),
])  # fmt: skip
def test_what_4_bits_or_merging_change_is_refused(kind: str, quantization: Any, said: str, tmp_path: Path) -> None:
    base = base_model(tmp_path / "base", tied=True)
    saved = adapter(base, tmp_path / "adapter", kind)
    with pytest.raises(UserError, match=said):
        load_policy(str(base), adapter=str(saved), lora=LoraConfig(quantization=quantization), device="cpu")
