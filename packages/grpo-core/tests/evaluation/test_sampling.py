from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from grpo_core.engines.base import Request, SampleKey, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.errors import UserError
from grpo_core.evaluation.rows import subset
from grpo_core.evaluation.sampling import EngineSampler, Question, Sampled
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.memory import Budget, OutOfMemoryError, bytes_per_token, is_out_of_memory
from grpo_core.task.row import Row

LIMIT = 6
SAMPLING = Sampling(max_completion_length=LIMIT)


class Letters:
    """A tokenizer: a token a letter."""

    eos_token_id = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}


@dataclass
class SmallMemory:
    """An engine whose memory holds `room` completions; the rest of a batch that is too large is lost."""

    room: int
    error: type[BaseException] = torch.OutOfMemoryError
    before: int = 0  # completions that come before memory runs out
    batches: list[int] = field(default_factory=list)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        self.batches.append(len(requests))
        for index, request in enumerate(requests):
            if len(requests) > self.room and index == self.before:
                raise self.error("CUDA out of memory. Tried to allocate 20.00 MiB.\nMore.")
            text = f"{request.key.prompt_id}{request.key.sample}"
            yield index, Completion((1, 2), (-0.1, -0.1), text, "stop", 0)

    def sync(self, version: int) -> None:
        raise AssertionError("an evaluation changes no weights")


def questions(rows: int, n: int = 1, prompt: str = "ab") -> list[Question]:
    return [Question(prompt + str(row % 10), SampleKey(0, 0, f"r{row}/", s)) for row in range(rows) for s in range(n)]


def answers(sampler: EngineSampler, asked: Sequence[Question]) -> list[Sampled]:
    found = list(sampler.sample(asked, SAMPLING))
    assert len(found) == len(asked), "every question is answered once"
    by_index = dict(found)
    return [by_index[index] for index in range(len(asked))]


# --- batches


def test_one_batch_where_it_fits() -> None:
    engine = SmallMemory(room=100)
    found = answers(EngineSampler(engine, Letters()), questions(5, n=2))
    assert engine.batches == [10]
    assert [answer.text for answer in found[:3]] == ["r0/0", "r0/1", "r1/0"]
    assert found[0] == Sampled("r0/0", 2, False, (97, 98, 48), (1, 2))


def test_the_tokens_of_a_thought_are_counted() -> None:
    class Thinking:
        def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
            for index, text in enumerate(("ab</think>c", "ab", "</think>")):
                ids = tuple(map(ord, text))
                yield index, Completion(ids, (-0.1,) * len(ids), text, "stop", 0)

    class Spelled(Letters):
        def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
            return "".join(map(chr, ids))

    found = answers(EngineSampler(Thinking(), Spelled()), questions(3))  # type: ignore[arg-type] # no sync
    assert [answer.think_length for answer in found] == [2, None, 0]


def test_tokens_bound_a_batch_and_a_prompt_counts_once() -> None:
    # A row of 2 completions: prompt 3 + 2 · limit 6 = 15 tokens; two rows are 30.
    engine = SmallMemory(room=100)
    answers(EngineSampler(engine, Letters(), tokens_at_once=30), questions(4, n=2))
    assert engine.batches == [4, 4]


def test_batch_size_bounds_the_rows() -> None:
    engine = SmallMemory(room=100)
    answers(EngineSampler(engine, Letters(), prompts_at_once=2), questions(5, n=3))
    assert engine.batches == [6, 6, 3]


def test_a_single_completion_is_asked_however_large() -> None:
    engine = SmallMemory(room=100)
    answers(EngineSampler(engine, Letters(), tokens_at_once=1), questions(2))
    assert engine.batches == [1, 1]


# --- the model's context


@dataclass
class Limits:
    """An engine that notes how long each completion may be."""

    seen: dict[str, int] = field(default_factory=dict)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            self.seen[request.key.prompt_id] = request.limit(sampling)
            yield index, Completion((1,), (-0.1,), "a", "stop", 0)

    def sync(self, version: int) -> None:
        raise AssertionError("an evaluation changes no weights")


def test_an_answer_has_the_room_that_its_prompt_leaves() -> None:
    engine = Limits()
    sampler = EngineSampler(engine, Letters(), max_context=10)
    asked = [Question("x" * length, SampleKey(0, 0, str(length), 0)) for length in (3, 4, 5, 9, 10, 11)]
    found = answers(sampler, asked)
    assert engine.seen == {"3": LIMIT, "4": LIMIT, "5": 5, "9": 1}
    assert [answer.is_too_long for answer in found] == [False] * 4 + [True] * 2
    assert found[4].error == "the prompt has 10 tokens, and the model's context is 10"


# --- out of memory


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_out_of_memory_halves_and_says_so_once(error: type[BaseException]) -> None:
    engine, said = SmallMemory(room=3, error=error), []
    sampler = EngineSampler(engine, Letters(), warn=said.append)
    found = answers(sampler, questions(8))
    # 8 rows are 8 · (3 + 6) = 72 tokens: 8 fail, 36 tokens are 4 rows: fail, 18 tokens are 2 rows: that fits.
    assert engine.batches == [8, 4, 2, 2, 2, 2]
    assert [answer.text for answer in found] == [f"r{row}/0" for row in range(8)]
    assert len(said) == 1
    assert "out of memory: sampling goes on with at most 36 tokens at once" in said[0]
    engine.batches.clear()
    answers(sampler, questions(4))
    assert engine.batches == [2, 2], "what was learned holds for the next task"


def test_what_was_finished_before_is_not_sampled_again() -> None:
    engine = SmallMemory(room=4, before=3)
    answers(EngineSampler(engine, Letters()), questions(8))
    assert engine.batches == [8, 4, 1], "three came before memory ran out; five were left, four at a time"


def test_the_cpus_allocator_counts_too() -> None:
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))


def test_one_completion_that_does_not_fit_is_an_error_with_advice() -> None:
    engine = SmallMemory(room=0)
    with pytest.raises(
        OutOfMemoryError, match=r"even for one completion \(9 tokens\).*eval.max_completion_length"
    ) as it:
        answers(EngineSampler(engine, Letters()), questions(2))
    assert "\n" not in str(it.value)
    assert it.value.exit_code == 1
    assert engine.batches == [2, 1]


def test_other_errors_are_not_taken_for_it() -> None:
    with pytest.raises(RuntimeError, match="CUDA"):
        answers(EngineSampler(SmallMemory(room=1, error=RuntimeError), Letters()), questions(2))


def test_a_budget_never_grows() -> None:
    budget = Budget(100, "sampling")
    budget.shrink(80, is_smallest=False, error=MemoryError())
    assert budget.tokens == 40
    budget.shrink(1000, is_smallest=False, error=MemoryError())
    assert budget.tokens == 20


def test_bytes_of_a_token() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=8, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    # keys and values · 3 layers · 2 heads of 4 · 4 bytes
    assert bytes_per_token(LlamaForCausalLM(config)) == 2 * 3 * 2 * 4 * 4


# --- rows and settings


def test_a_subset_is_always_the_same_and_grows() -> None:
    rows = [Row(id=f"r{index}") for index in range(40)]
    tenth, half = subset(rows, 0.1), subset(rows, 0.5)
    assert (len(tenth), len(half)) == (4, 20)
    assert tenth == subset(list(reversed(rows)), 0.1)[::-1], "whatever order the rows come in"
    assert {row.id for row in tenth} < {row.id for row in half}, "a larger share holds the smaller one"
    assert tenth != rows[:4], "not the first ones: a file may be sorted"
    assert [row.id for row in half] == sorted((row.id for row in half), key=lambda name: int(name[1:]))
    assert subset(rows, None) == subset(rows, 1.0) == rows
    assert len(subset(rows[:3], 0.01)) == 1


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="above 0 and at most 1"):
        subset([Row(id="a")], share)


def test_several_greedy_completions_are_refused() -> None:
    with pytest.raises(UserError, match=r"eval\.n=4 at temperature 0.*eval\.temperature=0\.7"):
        EvaluationSettings(n=4)


def test_the_results_folder_names_the_sampling() -> None:
    assert EvaluationSettings(n=8, temperature=0.7).folder == "temp0.7_p1.0_r8"
    assert EvaluationSettings().folder == "temp0.0_p1.0_r1"
    assert EvaluationSettings(n=2, temperature=1, top_p=0.95).folder == "temp1.0_p0.95_r2"


def test_batches_decide_no_number() -> None:
    assert EvaluationSettings(batch_size=3, surprisal=False).deciding() == EvaluationSettings().deciding()
    assert EvaluationSettings(seed=1).deciding() != EvaluationSettings().deciding()
