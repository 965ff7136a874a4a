import json
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import UserError, load_task
from grpo_tasks_chess.commands import chess as commands
from grpo_tasks_chess.tokenizer import EMPTY, FILE_MARKS, RANK_MARKS, chess_tokenizer

TOKENIZER = chess_tokenizer()


def tokens(text: str) -> list[str]:
    return [TOKENIZER.decode([each]) for each in TOKENIZER(text)["input_ids"]]


def raw(text: str) -> str:
    """The text as its tokens spell it."""
    return str(TOKENIZER.backend_tokenizer.normalizer.normalize_str(text))


def test_each_token_of_a_board_says_what_stands_on_which_square() -> None:
    ids = TOKENIZER("P: r1b1k2r/8/8/3p4/8/8/PPPP1PPP/R3K2R w KQkq - 0 1")["input_ids"]
    names = tokens("P: r1b1k2r/8/8/3p4/8/8/PPPP1PPP/R3K2R w KQkq - 0 1")
    assert names[:10] == ["P:", " ", "r", "1", "b", "1", "k", "1", "1", "r/"]
    assert names[66:] == [" w", " ", "KQ", "kq", " -", " 0", " 1"]
    assert len(set(ids[2:66])) == 64  # no two squares share a token, empty ones neither
    other = TOKENIZER("A: 8/8/8/3p4/8/3p4/8/R3K2R b - - 12 40+a1a2+")["input_ids"]
    differ = [square for square in range(64) if ids[2 + square] != other[2 + square]]
    assert differ == [0, 2, 4, 7, 43, 48, 49, 50, 51, 53, 54, 55], "Black's pieces, and White's pawns"


def test_moves_numbers_and_clocks_keep_their_digits() -> None:
    for text in ("+b2b4+a2a3 b2b4+", "M: b7b8q e2e4 E: 0.35 -1.2 B: b7b8q", "KQkq e3 10 42", "+0.001+0+0"):
        assert raw(text) == text
    assert tokens("b2b4 e7e8q") == ["b2", "b4", " e7", "e8", "q"]


@pytest.mark.parametrize("spec", ["chess.policy?engine=none&size=60", "chess.environment?size=60"])
def test_lines_come_back_and_a_prompt_has_the_same_tokens_alone(spec: str) -> None:
    for prompt, completion in islice(load_task(spec).demos(), 60):
        alone, whole = TOKENIZER(prompt)["input_ids"], TOKENIZER(f"{prompt}{completion}")["input_ids"]
        assert whole[: len(alone)] == alone
        assert TOKENIZER.decode(whole) == f"{prompt}{completion}"
        assert TOKENIZER.decode(whole[len(alone) :]) == completion


@given(st.text(st.characters(codec="utf-8", exclude_characters=EMPTY + FILE_MARKS + RANK_MARKS), max_size=60))
def test_any_other_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


@given(st.text("rkPN1238/ wb-", max_size=60).map(lambda text: text + "k/8/8/8 w "))
def test_text_that_is_nearly_a_board_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


@pytest.mark.parametrize("text", ["8/8/4k3/8/8/3K4/8/8 w - - 0 1", "r/8/8/8/8/8/8/8 b - - 0 1", "1/8 w - - "])
def test_a_text_that_begins_with_a_board_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text
    assert TOKENIZER.decode(TOKENIZER(f"{text}\n{text}")["input_ids"]) == f"{text}\n{text}"


def test_the_command_writes_it_once(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    asked = ["make-tokenizer", str(tmp_path / "tokenizer")]
    assert CliRunner().invoke(commands, asked, catch_exceptions=False).exit_code == 0
    line = "P: 8/8/4k3/8/8/3K4/8/8 w - - 0 1"
    assert AutoTokenizer.from_pretrained(tmp_path / "tokenizer")(line)["input_ids"] == TOKENIZER(line)["input_ids"]
    with pytest.raises(UserError, match="not empty"):
        CliRunner().invoke(commands, asked, catch_exceptions=False)
    result = CliRunner().invoke(commands, ["make-tokenizer", str(tmp_path / "other"), "--json"], catch_exceptions=False)
    written = json.loads(result.stdout)
    assert written["tokens"] == len(TOKENIZER) and "tokenizer.json" in written["files"]
