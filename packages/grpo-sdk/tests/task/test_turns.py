import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import small_games

from grpo_sdk import Message, Score, Scorer, UserError, load_task
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.episode import Episode, PlayedTurn, Reply, learning_roles
from grpo_sdk.episodes.opponents import OpponentSampler, Unanswered, opponent_of
from grpo_sdk.episodes.player import Player, play, retold
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt, Row, labelled
from grpo_sdk.task.turns import continued, read_turns, write_turns

FILE = Path(small_games.__file__).resolve()
SLOW = Path(__file__).parent / "programs" / "slow_turns.py"


def message(role: str, content: str) -> Message:
    return Message(role=role, content=content)


ASKED, ANSWERED, NO = message("user", "2+2?"), message("assistant", "5"), message("user", "No.")
PREFILL, FILLED = message("assistant", "It is "), message("assistant", "It is 5")


@pytest.mark.parametrize(("prompt", "following", "whole"), [
    ("2+2=", "\nWrong. ", "2+2=5\nWrong. "),
    ("2+2=", "2+2=5 no: ", "2+2=5 no: "),  # what begins with the conversation is all of it
    ((ASKED,), "No.", (ASKED, ANSWERED, NO)),
    ((ASKED,), (NO,), (ASKED, ANSWERED, NO)),
    ((ASKED,), (ASKED, ANSWERED, NO), (ASKED, ANSWERED, NO)),
    ((ASKED, PREFILL), "No.", (ASKED, FILLED, NO)),
])  # fmt: skip
def test_a_conversation_goes_on_with_what_the_task_says(prompt: Prompt, following: Prompt, whole: Prompt) -> None:
    assert continued(prompt, "5", following) == whole


def test_messages_cannot_go_on_a_text() -> None:
    with pytest.raises(UserError, match="the task's prompt is text"):
        continued("2+2=", "5", (NO,))


def bound(name: str, **options: object) -> BoundTask:
    return load_task(f"{FILE}:{name}").with_options(**options)


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    made = {
        "guess": Scorer(bound("GUESS"), workers=1),
        "memory": Scorer(bound("MEMORY", tries=2), workers=1),
        "heap": Scorer(bound("HEAP"), workers=1),
        "seat": Scorer(bound("HEAP", opponent="greedy", seat="first", heap=9), workers=1),
        "first": Scorer(bound("HEAP", opponent="base", seat="first"), workers=1),
        "second": Scorer(bound("HEAP", opponent="base", seat="second"), workers=1),
    }
    yield made
    for scorer in made.values():
        scorer.close()


class Answers:
    """Answers with a function of the prompt, or always the same; remembers rounds and keys."""

    def __init__(self, answer: object) -> None:
        self.answer, self.rounds, self.keys = answer, [], []  # type: ignore[var-annotated]

    def __call__(self, asked: list[Episode[str]]) -> Iterator[tuple[int, Reply[str] | Unanswered]]:
        self.rounds.append([one.prompt for one in asked])
        self.keys += [one.turn_key for one in asked]
        for index in reversed(range(len(asked))):  # engines finish in any order
            text = self.answer(str(asked[index].prompt)) if callable(self.answer) else self.answer
            yield index, Reply(text, text)


def played(
    scorer: Scorer, answers: object, rows: Sequence[Row] | None = None, opponent: OpponentSampler | None = None
) -> list[Episode[str]]:
    """An episode of each row, or of the first of the task."""
    task, player = scorer.task, Player(scorer, opponent)
    made = [
        Episode[str](task, row, SampleKey(0, 1, f"p/{row.id}", 0), task.prompt(row)) for row in rows or task.rows()[:1]
    ]
    ended: list[int] = []
    answer = answers if isinstance(answers, Answers) else Answers(answers)

    def sample(asked: Sequence[int]) -> Iterator[tuple[int, Reply[str] | Unanswered]]:
        for at, reply in answer([made[index] for index in asked]):
            yield asked[at], reply

    play([(player, one) for one in made], sample, ended.append)
    assert sorted(ended) == list(range(len(made)))
    return made


def scored(scorer: Scorer, one: Episode[str]) -> dict[str, Score]:
    return {role: future.result() for role, future in Player(scorer).score(one).items()}


def test_a_conversation_goes_on_until_the_task_is_content(scorers: dict[str, Scorer]) -> None:
    answers = Answers(lambda prompt: "5" if prompt == "guess:" else "7" if "higher" in prompt else "2")
    made = played(scorers["guess"], answers, scorers["guess"].task.rows())
    assert len(answers.rounds[0]) == 4 and len(answers.rounds) <= 3
    assert len(set(answers.keys)) == len(answers.keys) > 4, "every turn has random numbers of its own"
    for one in made:
        assert len(one.turns) <= 3 and not one.state.fault and one.is_over
        for earlier, later in zip(one.turns, one.turns[1:], strict=False):
            assert str(later.prompt).startswith(str(earlier.prompt) + earlier.text)
        score = scored(scorers["guess"], one)[""]
        assert score.value == float(int(one.turns[-1].text) == one.row.secret)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("prompts", "said"), [
    (["2+2=", "2+2=5 no: "], ["assistant: 5", "user:  no: ", "assistant: 4"]),
    ([(ASKED, PREFILL), (ASKED, FILLED, NO)], ["assistant: 5", "user: No.", "assistant: 4"]),
    ([(ASKED,)], []),
])  # fmt: skip
def test_who_said_what_begins_with_the_first_completion(
    scorers: dict[str, Scorer], prompts: list[Prompt], said: list[str]
) -> None:
    scorer = scorers["guess"]
    one = Episode[None](scorer.task, scorer.task.rows()[0], SampleKey(0, 1, "p", 0), prompts[0])
    one.turns += [
        PlayedTurn("", prompt, text, None, 0, Message(role="assistant", content=text))
        for prompt, text in zip(prompts, "54", strict=False)
    ]
    assert [f"{each['role']}: {each['content']}" for each in one.messages] == said
    assert one.story == ("\n".join(said) or "5")


def test_a_validator_and_feedback_may_see_all_turns(scorers: dict[str, Scorer]) -> None:
    scorer = scorers["memory"]
    row = scorer.task.rows()[0].model_copy(update={"secret": 7})
    (one,) = played(scorer, lambda prompt: "7" if "not 3:" in prompt else "3", [row])
    assert [turn.text for turn in one.turns] == ["3", "7"]
    assert scored(scorer, one)[""].value == 0.5
    said = [message("assistant", "3"), message("user", "\nnot 3:"), message("assistant", "7")]
    assert list(one.messages) == said and one.story == "assistant: 3\nuser: \nnot 3:\nassistant: 7"
    assert list(retold(scorer, row, one.scored_texts()[""])) == said, "of the text alone"
    assert retold(scorer, row, "7") == () == retold(scorers["guess"], row, write_turns(["3", "7"]))
    assert [score.value for score in scorer.score(["7", one.scored_texts()[""]], [row, row])] == [1.0, 0.5]


def test_options_may_bound_the_turns(scorers: dict[str, Scorer]) -> None:
    (one,) = played(scorers["memory"], "10")
    assert [turn.place for turn in one.turns] == [0, 1] and scorers["memory"].task.max_turns == 2
    single = bound("MEMORY", tries=1)
    assert not single.has_turns
    assert single.scored_text(["7"]) == "7" and single.score(write_turns(["3", "7"]), single.rows()[0]).valid is False
    with pytest.raises(UserError, match=r"max_turns\(\) must give a whole number from 1, not 0"):
        bound("MEMORY", tries=0).has_turns  # noqa: B018


@pytest.mark.parametrize(
    "text", ['{"turns": []}', '{"turns": [1]}', '{"turns": ["a"], "b": 1}', "[" * 9999, "7", '"7"']
)
def test_a_text_that_is_no_conversation_is_one_turn(text: str) -> None:
    assert read_turns(text) == (text,)


def test_any_text_survives_in_a_conversation() -> None:
    texts = ("\ud800", "\0", "", '{"turns": ["a"]}')
    assert read_turns(write_turns(texts)) == texts


def test_one_policy_plays_both_seats(scorers: dict[str, Scorer]) -> None:
    (one,) = played(scorers["heap"], lambda prompt: "2" if "5" in prompt else "3")
    assert [(turn.role, turn.text) for turn in one.turns] == [("first", "2"), ("second", "3")] and not one.goes_on
    assert [label for label, _ in labelled(one.messages)] == ["", "1. first", "", "2. second", "", ""]
    assert retold(scorers["heap"], one.row, one.scored_texts()["second"]) == one.messages
    assert retold(scorers["heap"], one.row, "no transcript") == ()
    assert {role: score.value for role, score in scored(scorers["heap"], one).items()} == {"first": -1.0, "second": 1.0}


def test_a_game_is_evaluated_by_sampling_and_declares_its_returns() -> None:
    task = bound("HEAP", opponent="greedy", illegal_reward=-3)
    assert task.evaluation.temperature == 1.0
    assert task.reward_bounds == (-3.0, 1.0) == task.part_bounds["outcome"]


def test_a_scripted_player_moves_without_being_asked(scorers: dict[str, Scorer]) -> None:
    (one,) = played(scorers["seat"], "1")
    assert one.state.moves == ("1", 2, "1", 2, "1")  # 9-1-3-1-3-1 = 0; the greedy one's moves are places in [1, 2, 3]
    assert learning_roles(one.task, one.row) == ("first",)
    assert scored(scorers["seat"], one)["first"].solved


class Rival:
    def __init__(self, answer: str | Unanswered) -> None:
        self.answer = answer

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        return [self.answer if isinstance(self.answer, Unanswered) else (self.answer,) for _ in prompts]


def test_a_model_plays_the_other_seat(scorers: dict[str, Scorer]) -> None:
    assert opponent_of(scorers["second"].task) is not None and opponent_of(scorers["seat"].task) is None
    (one,) = played(scorers["second"], "2", opponent=Rival("3"))
    assert one.state.moves == ("3", "2") and [turn.role for turn in one.turns] == ["second"]
    assert scored(scorers["second"], one)["second"].value == 1.0


UNREADABLE = Unanswered("600 tokens", is_unreadable=True)


@pytest.mark.parametrize(("seat", "answer", "value", "fault", "why"), [
    ("second", Unanswered("gone"), None, "infrastructure", "gone"),
    ("first", UNREADABLE, 0.0, "", ""),  # what the policy wrote cannot be read
    ("second", UNREADABLE, None, "infrastructure", ""),  # nothing of it was written by the policy
])  # fmt: skip
def test_an_opponent_that_does_not_answer_is_no_win(scorers, seat, answer, value, fault, why):
    (one,) = played(scorers[seat], "2", opponent=Rival(answer))
    score = scored(scorers[seat], one)[seat]
    assert (score.value, score.valid, score.fault) == (value, False, fault) and why in score.why


def test_a_conversation_that_is_full_is_scored_as_it_is(scorers: dict[str, Scorer]) -> None:
    class Full(Answers):
        def __call__(self, asked: list[Episode[str]]) -> Iterator[tuple[int, Reply[str] | Unanswered]]:
            for index, one in enumerate(asked):
                yield index, Unanswered("full", is_unreadable=True) if one.turns else Reply("x", "x")

    (one,) = played(scorers["guess"], Full(None))
    score = scored(scorers["guess"], one)[""]
    assert (score.value, score.fault, len(one.turns)) == (0.0, "", 1)


@pytest.mark.parametrize(("name", "value", "fault"), [("ABSTAINS", None, "timeout"), ("FAILS", 0.0, "")])
def test_a_task_that_hangs_between_turns(name: str, value: float | None, fault: str) -> None:
    started = time.monotonic()
    with Scorer(load_task(f"{SLOW}:{name}"), workers=1, timeout_s=0.3) as scorer:
        (one,) = played(scorer, "x")
        score = scored(scorer, one)[""]
    assert (score.value, score.fault) == (value, fault) and time.monotonic() - started < 20
    assert score.why == "task slow_turns.slow: no answer within 0.3 s"


def test_a_move_that_cannot_be_read_in_time_is_an_illegal_one() -> None:
    with Scorer(load_task(f"{SLOW}:HEAP"), workers=1, timeout_s=0.5) as scorer:
        (one,) = played(scorer, lambda prompt: "spin" if prompt.startswith("second") else "1")
        scores = scored(scorer, one)
    assert [turn.text for turn in one.turns] == ["1", "spin"] and one.state.moves == ("1", "")
    assert (scores["second"].valid, scores["second"].why) == (False, "invalid: illegal move: no number")
    assert {role: score.value for role, score in scores.items()} == {"first": 1.0, "second": -1.0}
