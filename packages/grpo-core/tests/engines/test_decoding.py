"""The rule, by which everything here is judged: a completion stops at its first token after which the decoded text
contains a stop string, and its text ends right after the string that is complete first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from grpo_core.engines.decoding import REPLACEMENT, StopMatcher, StopStrings, TextDecoder

EOS = "<|eos|>"
PAIRS = ["Ġa", "ĊĊ", "ab", "END", "Ã©", "©a", "ĠEN", "D!", "ðŁ", "ĺĢ"]
WORDS = ["▁a", "▁END", "END", "a", "b", "▁", "E", "N", "D", "\n", "▁b", "é"]


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's kind: a token is any bytes; here single bytes, some pairs that cut characters in two, and an EOS."""
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *PAIRS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama's kind: words with a space in front, a space that is lost where text begins, and bytes for the rest."""
    vocabulary = {token: index for index, token in enumerate([*WORDS, *(f"<0x{byte:02X}>" for byte in range(256))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}
STOPS = [("END",), ("\n", "\n\n"), ("a b", "b"), ("é",), ("😀a",), (" ",), ("END!", "ND", "D")]
LIKELY = "END a b\n é 😀 !"  # so that random tokens make stop strings, and nearly make them


def by_the_rule(decode: TextDecoder, ids: list[int], stop: tuple[str, ...]) -> tuple[int, str] | None:
    for n in range(1, len(ids) + 1):
        text = decode(ids[:n])
        if ends := [text.find(each) + len(each) for each in stop if each in text]:
            return n, text[: min(ends)]
    return None


def by_the_matcher(decode: TextDecoder, ids: list[int], stop: tuple[str, ...]) -> tuple[int, str] | None:
    matcher = StopMatcher(StopStrings(decode, stop))
    for n, token in enumerate(ids, 1):
        text = matcher.push(token)
        if text is not None:
            return n, text
    return None


def byte_tokens(kind: str, text: str) -> list[str]:
    """Tokens of single bytes that spell a text."""
    if kind == "byte fallback":
        return [f"<0x{byte:02X}>" for byte in text.encode()]
    [(spelled, _)] = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [*spelled]


def likely_ids(kind: str) -> list[int]:
    """Tokens that spell `LIKELY`, whole and byte by byte."""
    whole = PAIRS if kind == "byte level" else WORDS
    found: list[int] = TOKENIZERS[kind].convert_tokens_to_ids([*whole, *byte_tokens(kind, LIKELY)])
    return found


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(stop=st.sampled_from(STOPS), data=st.data())
@settings(max_examples=150)
def test_the_matcher_follows_the_rule(kind: str, stop: tuple[str, ...], data: st.DataObject) -> None:
    decode = TextDecoder(TOKENIZERS[kind])
    likely = likely_ids(kind)
    any_id = st.integers(0, len(TOKENIZERS[kind]) - 1)
    # A long start without a stop string, so that the tail is not everything.
    calm = [index for index in likely if by_the_rule(decode, [index] * 3, stop) is None]
    start = data.draw(st.lists(st.sampled_from(calm), max_size=60))
    while by_the_rule(decode, start, stop):
        start.pop()
    ids = start + data.draw(st.lists(st.sampled_from(likely) | any_id, max_size=25))
    assert by_the_matcher(decode, ids, stop) == by_the_rule(decode, ids, stop)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_stop_string_after_many_bytes_of_characters(kind: str) -> None:
    # The tail is cut in the middle of 😀 for some of these lengths; all bytes of Llama's kind are one run.
    tokenizer = TOKENIZERS[kind]
    for count in range(3, 40):
        text = "😀" * count + "é"
        ids = tokenizer.convert_tokens_to_ids(byte_tokens(kind, text))
        assert by_the_matcher(TextDecoder(tokenizer), ids, ("é",)) == (len(ids), text)


def test_special_tokens_have_no_text_and_spaces_are_not_cleaned_up() -> None:
    tokenizer = TOKENIZERS["byte level"]
    decode, eos = TextDecoder(tokenizer), tokenizer.eos_token_id
    start, end, *others = tokenizer.convert_tokens_to_ids(["ĠEN", "D!", "a", "Ġ", "!"])
    ids = [start, eos, eos, end, eos]
    assert decode(ids) == " END!"
    assert by_the_matcher(decode, ids, ("END",)) == (4, " END")
    assert by_the_matcher(decode, ids[:3], (EOS,)) is None
    assert decode(others) == "a !"


def test_broken_bytes_do_not_make_tokens_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3,000 bytes that never become a character, each of which might complete the stop string: the tail stays bounded.
    decode = TextDecoder(TOKENIZERS["byte level"])
    lengths = []
    monkeypatch.setattr(TextDecoder, "__call__", lambda self, ids: lengths.append(len(ids)) or REPLACEMENT)
    matcher = StopMatcher(StopStrings(decode, ("é",)))
    for _ in range(3000):
        assert matcher.push(TOKENIZERS["byte level"].convert_tokens_to_ids("©")) is None
    assert max(lengths) < 600
