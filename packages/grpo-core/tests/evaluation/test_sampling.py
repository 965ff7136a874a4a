from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from grpo_core.evaluation.candidate import EngineSampler
from grpo_core.evaluation.held_out import subset
from grpo_core.evaluation.sampling import Question, Sampled
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.memory import OutOfMemoryError, is_out_of_memory
from grpo_core.policy.pass_budget import InferenceBudget, PassSize
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Row

LIMIT = 6
SAMPLING = Sampling(max_completion_length=LIMIT)


class Letters:
    """A tokenizer: a token a letter."""

    eos_token_id = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "x" * len(ids)


@dataclass
class SmallMemory:
    """An engine whose memory holds `room` completions; the rest of a batch that is too large is lost."""

    room: int
    error: type[BaseException] = torch.OutOfMemoryError
    before: int = 0  # completions that come before memory runs out
    batches: list[int] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # prompt -> how long its completion may be

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        self.batches.append(len(requests))
        for index, request in enumerate(requests):
            if len(requests) > self.room and index == self.before:
                raise self.error("CUDA out of memory. Tried to allocate 20.00 MiB.\nMore.")
            self.limits[request.key.prompt_id] = request.limit(sampling)
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


@pytest.mark.parametrize(("limits", "rows", "n", "batches"), [
    ({}, 5, 2, [10]),
    # A row of 2 completions: prompt 3 + 2 · limit 6 = 15 tokens; two rows are 30.
    ({"tokens_at_once": 30}, 4, 2, [4, 4]),
    ({"prompts_at_once": 2}, 5, 3, [6, 6, 3]),
    ({"tokens_at_once": 1}, 2, 1, [1, 1]),  # a single completion is asked, however large
])  # fmt: skip
def test_tokens_and_rows_bound_a_batch_and_answers_are_in_order(
    limits: dict[str, int], rows: int, n: int, batches: list[int]
) -> None:
    engine = SmallMemory(room=100)
    found = answers(EngineSampler(engine, Letters(), **limits), questions(rows, n))
    assert engine.batches == batches
    assert found[0] == Sampled("r0/0", 2, False, (97, 98, 48), (1, 2))
    assert [answer.text for answer in found] == [f"r{row}/{sample}" for row in range(rows) for sample in range(n)]


def test_the_tokens_of_a_thought_are_counted() -> None:
    asked = [Question("ab", SampleKey(0, 0, text, 0)) for text in ("a</think>", "ab</think>", "ab")]
    found = answers(EngineSampler(SmallMemory(room=100), Letters()), asked)
    assert [answer.think_length for answer in found] == [1, 2, None]


def test_an_answer_has_the_room_that_its_prompt_leaves() -> None:
    engine = SmallMemory(room=100)
    sampler = EngineSampler(engine, Letters(), max_context=10)
    asked = [Question("x" * length, SampleKey(0, 0, str(length), 0)) for length in (3, 4, 5, 9, 10, 11)]
    found = answers(sampler, asked)
    assert engine.limits == {"3": LIMIT, "4": LIMIT, "5": 5, "9": 1}
    assert [answer.is_too_long for answer in found] == [False] * 4 + [True] * 2
    assert found[4].error == "the prompt has 10 tokens, and the model's context is 10"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_out_of_memory_halves_and_says_so_once(error: type[BaseException]) -> None:
    engine, said = SmallMemory(room=3, error=error), []
    sampler = EngineSampler(engine, Letters(), warn=said.append)
    found = answers(sampler, questions(8))
    # 8 rows are 8 · (3 + 6) = 72 tokens: 8 fail, 36 tokens are 4 rows: fail, 18 tokens are 2 rows: that fits.
    assert engine.batches == [8, 4, 2, 2, 2, 2]
    assert [answer.text for answer in found] == [f"r{row}/0" for row in range(8)]
    assert ["sampling goes on with at most 36 tokens" in each for each in said] == [True]
    engine.batches.clear()
    answers(sampler, questions(4))
    assert engine.batches == [2, 2], "what was learned holds for the next task"
    engine = SmallMemory(room=4, error=error, before=3)
    answers(EngineSampler(engine, Letters()), questions(8))
    assert engine.batches == [8, 4, 1], "three came before memory ran out; five were left, four at a time"


def test_the_cpus_allocator_counts_too() -> None:
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    with pytest.raises(RuntimeError, match="CUDA"):
        answers(EngineSampler(SmallMemory(room=1, error=RuntimeError), Letters()), questions(2))


def test_one_completion_that_does_not_fit_is_an_error_with_advice() -> None:
    engine = SmallMemory(room=0)
    with pytest.raises(OutOfMemoryError, match=r"one completion \(9 tokens\).*eval.max_completion_length") as it:
        answers(EngineSampler(engine, Letters()), questions(2))
    assert "\n" not in str(it.value) and it.value.exit_code == 1
    assert engine.batches == [2, 1]
    budget = InferenceBudget(100, "sampling")
    budget.halve(PassSize(2, 80, 2), MemoryError())
    budget.halve(PassSize(2, 1000, 2), MemoryError())
    assert budget.tokens == 20, "it never grows"


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
    for share in (0.0, -0.5, 1.5):
        with pytest.raises(UserError, match="above 0 and at most 1"):
            subset(rows, share)


def test_what_does_not_change_completions_decides_nothing() -> None:
    assert EvaluationSettings(batch_size=3, surprisal=False).deciding() == EvaluationSettings().deciding()
    assert EvaluationSettings(seed=1).deciding() != EvaluationSettings().deciding()
