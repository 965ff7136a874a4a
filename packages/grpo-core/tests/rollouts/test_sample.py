from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from grpo_core.policy.fresh import byte_tokenizer
from grpo_core.rollouts import sample
from grpo_core.rollouts.rollout import PromptGroup, Rollout, packed, unpacked
from grpo_core.rollouts.sample import RolloutContext, sample_rollouts
from grpo_core.training.batch import collate
from grpo_sdk import Scorer
from grpo_sdk.endpoints.base import Arrivals, Request, Sampling, StopRequested
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.episodes.player import Player
from grpo_sdk.task.mixture import Draw

TASKS = Path(__file__).parents[3] / "grpo-sdk" / "tests" / "scoring" / "shop_tasks.py"
TOKENIZER = byte_tokenizer()


def written(name: str, **arguments: object) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


class Scripted:
    """An engine that says what a function makes of the prompt's text."""

    def __init__(self, say: Callable[[str], str], *, limit: int = 10_000) -> None:
        self._say, self._limit = say, limit
        self.waited: list[int] = []

    def sync(self, version: int) -> None: ...

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            yield index, self._completion(request)

    def generate_arriving(self, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        while (requests := arrivals.take(wait=True)) is not None:
            self.waited.append(len(requests))
            for number, request in requests:
                yield number, self._completion(request)

    def _completion(self, request: Request) -> Completion:
        ids = TOKENIZER(self._say(TOKENIZER.decode(request.prompt_ids)))["input_ids"]
        is_cut = len(ids) > self._limit
        ids = ids[: self._limit] if is_cut else [*ids, TOKENIZER.eos_token_id]
        text = TOKENIZER.decode(ids, skip_special_tokens=True)
        return Completion(tuple(ids), (-0.5,) * len(ids), text, "length" if is_cut else "stop", 0)


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    made = {name: Scorer(f"{TASKS}:{name}", workers=1, tool_workers=2) for name in ("SHOP", "BAD")}
    yield made
    for scorer in made.values():
        scorer.close()


def sampled(
    scorer: Scorer, engine: Any, schedule: Any = "rounds", generations: int = 2, **options: Any
) -> list[Rollout]:
    task, rows = scorer.task, scorer.task.rows()[:2]
    groups = [PromptGroup(Draw(task, task.label, row, position), ()) for position, row in enumerate(rows)]
    scoring: Any = {task.label: Player(scorer, None, TOKENIZER)}
    context = RolloutContext(engine=engine, scoring=scoring, seed=0, schedule=schedule, **options)
    return sample_rollouts(groups, context, Sampling(), generations, 1)


def shopping(prompt: str) -> str:
    if "<tool_result>" not in prompt:
        return written("look_up", item="apple")
    return written("order", item="apple", count=int(prompt.split()[1]))


@pytest.mark.parametrize("schedule", ["rounds", "arrival"])
def test_exactly_the_sampled_tokens_are_trained(scorers: dict[str, Scorer], schedule: str) -> None:
    rollouts = sampled(scorers["SHOP"], Scripted(shopping), schedule)
    assert [rollout.score.value for rollout in rollouts] == [1.0] * 4
    batch = collate(rollouts, pad_id=0, mask_truncated=False)
    assert batch.input_ids.shape[0] == 4, "each episode is one row"
    row = batch.input_ids[0, : batch.prompt_lens[0] + batch.completion_lens[0]]
    said = row[batch.prompt_lens[0] :]
    trained = said[batch.mask[0, : len(said)]]
    look, order = written("look_up", item="apple"), written("order", item="apple", count=1)
    eos = TOKENIZER.eos_token
    assert TOKENIZER.decode(trained) == f"{look}{eos}{order}{eos}"
    assert TOKENIZER.decode(row).startswith("Buy 1 apple. You have 10 coins.<tool_call>")
    assert "\n<tool_result>3</tool_result>\n" in TOKENIZER.decode(row)
    assert rollouts[0].text.split("\n") == [
        "environment:  You have 10 coins.",
        f"assistant: {look}",
        'tool look_up(item="apple"): 3',
        f"assistant: {order}",
        'tool order(item="apple", count=1): 1 apple',
    ]


def test_rollouts_reach_other_ranks_as_they_are(scorers: dict[str, Scorer]) -> None:
    rollouts = sampled(scorers["SHOP"], Scripted(shopping), generations=1)
    task = scorers["SHOP"].task
    groups = [PromptGroup(Draw(task, task.label, each.row, each.group), (7,)) for each in rollouts]
    assert unpacked(packed(rollouts, 0), groups) == rollouts


def test_an_episode_goes_on_when_its_own_tool_has_answered(scorers: dict[str, Scorer]) -> None:
    turns: list[str] = []

    def say(prompt: str) -> str:
        turns.append(prompt)
        seconds = 1.0 if len(turns) == 1 else 0.01
        return written("wait", seconds=seconds) if prompt.count("<tool_result>") < 2 else "done"

    engine, idle = Scripted(say), list[float]()
    started = time.monotonic()
    rollouts = sampled(scorers["BAD"], engine, "arrival", on_idle=idle.append)
    assert 0.5 < sum(idle) < time.monotonic() - started, "the others are over before the first goes on"
    assert [rollout.score.solved for rollout in rollouts] == [True] * 4
    assert len(engine.waited) > 3, "the others had their turns while the first waited"
    assert [len(rollout.turns) for rollout in rollouts] == [3] * 4


def test_a_call_that_the_length_limit_cuts_off_is_an_invalid_turn(scorers: dict[str, Scorer]) -> None:
    rollout = sampled(scorers["SHOP"], Scripted(shopping, limit=30))[0]
    assert (rollout.score.value, rollout.score.valid, len(rollout.turns)) == (0.0, False, 1)
    assert rollout.score.why == "invalid: the length limit cut a call off"


def test_a_broken_tool_abstains_and_the_other_episodes_do_not(scorers: dict[str, Scorer]) -> None:
    asked: list[str] = []

    def say(prompt: str) -> str:
        asked.append(prompt)
        return written("sleep", seconds=60) if len(asked) == 1 else "done"

    first, *others = sampled(scorers["BAD"], Scripted(say), "arrival")
    assert first.score.fault == "timeout" and "tool sleep()" in first.score.why
    assert first.turns and [rollout.score.value for rollout in others] == [1.0] * 3


def test_a_conversation_that_fills_the_context_is_scored_as_it_is(scorers: dict[str, Scorer]) -> None:
    rollout = sampled(scorers["SHOP"], Scripted(shopping), "arrival", max_context=300)[0]
    assert len(rollout.turns) == 1 and rollout.score.why == "invalid: nothing was ordered"


# Scores that are waited for


def context(**options: Any) -> RolloutContext:
    unused: Any = None
    return RolloutContext(engine=unused, scoring=unused, seed=0, **options)


def test_scores_that_take_long_are_told_of_and_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "ASK_EVERY_S", 0.02)
    monkeypatch.setattr(sample, "SHOW_AFTER_S", 0.05)
    futures, told = [Future[int]() for _ in range(3)], list[tuple[int, int]]()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        place = (2, 0, 1)[done]
        futures[place].set_result(place)

    assert context(on_wait=tell).wait(futures) == [0, 1, 2]
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_a_stop_takes_back_the_scores_that_are_still_waited_for() -> None:
    done, waiting = Future[int](), Future[int]()
    done.set_result(1)
    with pytest.raises(StopRequested):
        context(should_stop=lambda: True).wait([done, waiting])
    assert waiting.cancelled()
