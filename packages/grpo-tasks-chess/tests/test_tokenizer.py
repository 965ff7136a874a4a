from __future__ import annotations

from itertools import islice
from pathlib import Path

import chess
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import UserError, load_task
from grpo_tasks_chess.commands import chess as commands
from grpo_tasks_chess.tokenizer import EMPTY, chess_tokenizer

TOKENIZER = chess_tokenizer()


def tokens(text: str) -> list[str]:
    return [TOKENIZER.decode([each]) for each in TOKENIZER(text)["input_ids"]]


def raw(text: str) -> str:
    """The text with the empty squares as the model sees them."""
    return str(TOKENIZER.backend_tokenizer.normalizer.normalize_str(text))


def test_a_board_has_64_squares_and_7_slashes() -> None:
    board = raw("r1b1k2r/8/8/3p4/8/8/PPPP1PPP/R3K2R").split("/")
    assert [len(rank) for rank in board] == [8] * 8
    assert board[0] == f"r{EMPTY}b{EMPTY}k{EMPTY * 2}r"
    assert len(tokens(chess.STARTING_BOARD_FEN)) == 71


def test_moves_numbers_and_clocks_keep_their_digits() -> None:
    for text in ("+b2b4+a2a3 b2b4+", "M: b7b8q e2e4 E: 0.35 -1.2 B: b7b8q", " w KQkq e3 10 42", "+0.001+0+0"):
        assert raw(text) == text
    assert tokens("b2b4 e7e8q") == ["b2", "b4", " e7", "e8", "q"]


@pytest.mark.parametrize("spec", ["chess.policy?engine=none&size=60", "chess.environment?size=60"])
def test_lines_come_back_and_a_prompt_has_the_same_tokens_alone(spec: str) -> None:
    for prompt, completion in islice(load_task(spec).demos(), 60):
        alone, whole = TOKENIZER(prompt)["input_ids"], TOKENIZER(f"{prompt}{completion}")["input_ids"]
        assert whole[: len(alone)] == alone
        assert TOKENIZER.decode(whole) == f"{prompt}{completion}"
        assert TOKENIZER.decode(whole[len(alone) :]) == completion


@given(st.text(st.characters(exclude_characters=EMPTY), max_size=60))
def test_any_other_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_the_command_writes_it_once(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    asked = ["make-tokenizer", str(tmp_path / "tokenizer")]
    assert CliRunner().invoke(commands, asked, catch_exceptions=False).exit_code == 0
    line = "P: 8/8/4k3/8/8/3K4/8/8 w - - 0 1"
    assert AutoTokenizer.from_pretrained(tmp_path / "tokenizer")(line)["input_ids"] == TOKENIZER(line)["input_ids"]
    with pytest.raises(UserError, match="not empty"):
        CliRunner().invoke(commands, asked, catch_exceptions=False)
