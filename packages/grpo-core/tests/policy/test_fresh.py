from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.policy.fresh import byte_tokenizer, fresh_model, learned_tokenizer, tokenizer_of
from grpo_sdk.errors import UserError

TEXTS = ["Write a program.\n```python\nprint(12 + 34)\n```", "print(x)\n    print(y)\n"] * 5
LEARNED, BYTES = learned_tokenizer(TEXTS, 300), byte_tokenizer()


def test_words_become_tokens_and_digits_and_line_breaks_stay_alone() -> None:
    tokens = [LEARNED.decode([each]) for each in LEARNED(" program.\n12\n    print")["input_ids"]]
    assert tokens == [" program", ".", "\n", "1", "2", "\n", "    ", "print"]
    assert len(LEARNED) <= 300


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_comes_back_and_a_line_that_ends_has_the_same_tokens_whatever_follows(line: str, more: str) -> None:
    for tokenizer in (LEARNED, BYTES):
        alone, whole = tokenizer(line + "\n")["input_ids"], tokenizer(f"{line}\n{more}")["input_ids"]
        assert tokenizer.decode(whole) == f"{line}\n{more}"
        assert whole[: len(alone)] == alone


def test_the_smallest_vocabulary_is_that_of_bytes() -> None:
    assert len(learned_tokenizer(TEXTS, 258)) == 258
    with pytest.raises(UserError, match="258"):
        learned_tokenizer(TEXTS, 257)
    with pytest.raises(UserError, match="tinny"):
        tokenizer_of("tinny")


def test_a_new_model_takes_the_tokenizer_of_a_folder_or_a_model(tmp_path: Path) -> None:
    LEARNED.save_pretrained(tmp_path)
    model, tokenizer = fresh_model("tiny", 0, tokenizer_of(str(tmp_path)))
    assert tokenizer.get_vocab() == LEARNED.get_vocab()
    assert model.get_input_embeddings().num_embeddings == len(LEARNED)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (LEARNED.eos_token_id, LEARNED.pad_token_id)
    assert len(tokenizer_of("tiny")) == 258


def test_new_tokens_begin_alike_where_they_share_bytes() -> None:
    model, tokenizer = fresh_model("tiny", 0, LEARNED)
    vectors = model.get_input_embeddings().weight.data
    print_, program, number = (tokenizer(text)["input_ids"][0] for text in ("print", " program", "1"))

    def cosine(one: int, other: int) -> float:
        return float(torch.cosine_similarity(vectors[one], vectors[other], dim=0))

    assert cosine(print_, program) > 0.3  # both have p and r
    assert abs(cosine(print_, number)) < 0.25
    assert float(vectors[program].std()) == pytest.approx(0.02, rel=0.2)
