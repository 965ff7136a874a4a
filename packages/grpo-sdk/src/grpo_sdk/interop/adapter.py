"""What the adapters of all trainers share: a task behind killable workers, its episodes, the trainers' packages.

A trainer's module says only what differs: its own classes, and its way to leave out what could not be scored.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from grpo_sdk.chat.json_calls import read_json_calls
from grpo_sdk.chat.text_form import in_text_form
from grpo_sdk.distributions import needs, version_of
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.endpoints.openai import sent_messages
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.opponents import endpoint_opponent, opponent_of, play_opponents
from grpo_sdk.episodes.player import Player, SteppedEpisode, Steps, arun
from grpo_sdk.errors import DataError, UnscoredError, UserError
from grpo_sdk.plugins.task_objects import AnyTask, send
from grpo_sdk.plugins.tasks import load_task, received_task
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.scoring.tool_workers import DEFAULT_TOOL_WORKERS
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import RANDOM, SELF, GameConfig
from grpo_sdk.task.marks import END_TOKENS, cut_at_stop, strip_end_tokens
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Score

RowReference = str | Mapping[str, Any] | Row
"""A row as a trainer carries it: JSON text, what a parser made of it, or the row itself."""

Messages = list[dict[str, Any]]

Completes = Literal["answer", "group", "episode", "episodes"]
"""What a trainer hands over: one completion, all those of a prompt, turn after turn, or the turns of a group."""


class TaskAdapter:
    """A task in another trainer, scored by killable workers.

    It pickles; a copy starts workers of its own.

    Args:
        task: Task or its spec.
        trainer: Name of the trainer, for errors.
        completes: What the trainer can hand over, besides one completion by itself.
        workers: Scoring processes, and at most as many that run tools; by default one per usable core, and 16.
        timeout_s: Limit per completion; by default the task's own.
        opponent_url: Endpoint that plays the task's opponent: `http://host:port/v1#model`.
        end_tokens: Texts that are removed from the end of a completion that was decoded with special tokens.
        takes_tools: Whether the policy can call the task's tools there; `calls` where messages have calls and results,
            in OpenAI's form, and `text` where they have none, so that tools are described and called in text.

    Raises:
        UserError: the trainer cannot train the task; says why.

    Attributes:
        task: The task.
        scorer: Its scorer.
    """

    def __init__(
        self,
        task: AnyTask,
        trainer: str,
        completes: Completes = "answer",
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        opponent_url: str | None = None,
        end_tokens: Sequence[str] = END_TOKENS,
        takes_tools: bool | Literal["calls", "text"] = False,
    ) -> None:
        self.task, self.trainer = load_task(task), trainer
        self.opponent = endpoint_opponent(self.task, opponent_url)
        self._end_tokens, self._takes_tools = tuple(end_tokens), takes_tools
        self.check(completes)
        self.scorer = Scorer(
            self.task, workers=workers, timeout_s=timeout_s, tool_workers=workers or DEFAULT_TOOL_WORKERS
        )
        options = {"timeout_s": timeout_s, "opponent_url": opponent_url, "end_tokens": self._end_tokens}
        options |= {"takes_tools": takes_tools}
        self._encoder: tuple[object, Any, EpisodeEncoder] | None = None
        self._remake = partial(_remade, send(self.task), trainer, completes, workers=workers, **options)

    def __repr__(self) -> str:
        return f"TaskAdapter({self.task.spec!r}, {self.trainer!r})"

    def __reduce__(self) -> tuple[Callable[..., TaskAdapter], tuple[object, ...]]:
        return self._remake, ()

    def check(self, completes: Completes) -> None:
        """Check that a trainer which hands that over can train the task.

        Raises:
            UserError: it cannot; says why.
        """
        name, task = self.task.name, self.task.task
        if self.opponent is None and opponent_of(self.task) is not None:
            raise UserError(
                f"task {name!r} has a model as its opponent: serve one (e.g. vllm serve MODEL) and give "
                "opponent_url='http://host:port/v1#MODEL'."
            )
        if task.has_tools and not self._takes_tools:
            door = DOORS.get(self.trainer, "the reward gets one completion")
            raise UserError(f"task {name!r} has tools; in {self.trainer} {door}. {WITH_TOOLS}")
        if self.task.has_turns and not completes.startswith("episode"):
            kind = "is a game" if task.game is not None else "has several turns"
            raise UserError(f"task {name!r} {kind}; {self.trainer}'s reward gets one completion. {ELSEWHERE}")
        if task.group_specs() and completes not in ("group", "episodes"):
            raise UserError(
                f"task {name!r} has the group reward {task.group_specs()[0].name}(), which compares the completions of "
                f"a prompt; {self.trainer}'s reward gets them one by one. {ELSEWHERE}"
            )
        if task.game is not None and isinstance(self.task.config, GameConfig) and self.task.config.opponent == SELF:
            raise UserError(
                f"task {name!r}: the policy plays {' and '.join(task.game.roles)}, each with its own score; "
                f"{self.trainer} takes one per episode. Choose who plays against it: {name}?opponent={RANDOM}."
            )

    def row(self, reference: RowReference) -> Row:
        """Read a row.

        Raises:
            DataError: it does not fit the task; names the field.
        """
        if isinstance(reference, Row):
            return reference
        if isinstance(reference, Mapping):
            reference = orjson.dumps(dict(reference)).decode()
        if not isinstance(reference, str):
            raise DataError(
                f"{self.trainer}: a row of task {self.task.name!r} is JSON text, as its data set holds it; got "
                f"{type(reference).__name__}."
            )
        return self.task.row_from_json(reference)

    def shuffled(self, seed: int) -> Iterator[str]:
        """The task's rows as JSON without end, in an order of its own for each pass."""
        rows = [row.model_dump_json() for row in self.task.rows()]
        order = random.Random(seed)
        while True:
            yield from order.sample(rows, len(rows))

    def completion(self, text: str) -> str:
        """The completion in a decoded text: without end tokens, up to the task's first stop string."""
        return cut_at_stop(strip_end_tokens(text, self._end_tokens), self.task.task.stop)[0]

    def score(self, texts: Sequence[str], rows: Sequence[RowReference], step: int = 0) -> list[Score]:
        """Score completions, each by itself, and wait; a score may have abstained.

        Args:
            texts: Decoded completions.
            rows: The row of each.
            step: Step of the training, for the random numbers of an opponent.
        """
        texts, read = [self.completion(text) for text in texts], [self.row(row) for row in rows]
        if self.opponent is None:
            return self.scorer.score(texts, read)
        keys = [SampleKey(0, step, f"{self.task.name}/{row.id}", index) for index, row in enumerate(read)]
        return play_opponents(self.scorer, texts, read, self.opponent, keys=keys).scores

    async def ascore(self, texts: Sequence[str], rows: Sequence[RowReference]) -> list[Score]:
        """Like `score`, without blocking the event loop."""
        if self.opponent is not None:
            return await asyncio.to_thread(self.score, texts, rows)
        return await self.scorer.ascore([self.completion(text) for text in texts], [self.row(row) for row in rows])

    def score_group(self, texts: Sequence[str], row: RowReference) -> list[Score]:
        """Score all completions of a prompt, with the rewards that compare them, and wait."""
        read = self.row(row)
        return self.compare(texts, read, self.score(texts, [read] * len(texts)))

    def compare(self, texts: Sequence[str], row: RowReference, scores: Sequence[Score]) -> list[Score]:
        """Add the rewards that compare the completions of a prompt to the scores that each has by itself, and wait."""
        if not self.task.task.group_specs():
            return list(scores)
        completions = texts if self.task.task.has_tools else [self.completion(text) for text in texts]
        (compared,) = group_scores(self.scorer, [(completions, self.row(row), list(scores))])
        return compared

    def episode(self, row: RowReference, sample: int = 0) -> SteppedEpisode:
        """Begin an episode of a row, to be played by `player.run` or `player.arun`.

        Args:
            row: The row.
            sample: Number of the rollout among those of the row, for the random numbers of an opponent.
        """
        read = self.row(row)
        prompt: Prompt = "" if self.task.task.game is not None else self.task.prompt(read)
        key = SampleKey(0, 0, f"{self.task.name}/{read.id}", sample)
        return SteppedEpisode(Player(self.scorer, self.opponent), read, prompt, key)

    def begin(self, stepped: SteppedEpisode) -> Steps[bool]:
        """Begin an episode; returns whether the policy has a turn."""
        has_turn = yield from stepped.begin()
        if self._speaks_calls:
            stepped.episode.prompt = _as_chat(stepped.episode.prompt)
        return has_turn

    def encoder(self, tokenizer: Any, **template: Any) -> EpisodeEncoder:
        """What encodes the task's episodes for a model, with the arguments that its chat template gets there."""
        known = (id(tokenizer), repr(template))
        if self._encoder is None or self._encoder[0] != known:
            own = tokenizer
            if template:
                own = copy.copy(tokenizer)
                own.apply_chat_template = partial(tokenizer.apply_chat_template, **template)
            self._encoder = known, tokenizer, EpisodeEncoder(self.task, own)
        return self._encoder[-1]

    async def aplay(
        self,
        row: RowReference,
        answer: Callable[[Episode[Any]], Awaitable[str | Reply[Any] | None]],
        sample: int = 0,
    ) -> tuple[Score, frozenset[int]]:
        """Play an episode to its end and score it; the score may have abstained.

        Args:
            row: The row.
            answer: Samples the completion of an episode's prompt, as `play` takes it; None ends an episode that the
                context cannot hold.
            sample: Number of the rollout among those of the row.

        Returns:
            (score, indices of the turns that are not to be trained, since a random move replaced theirs).
        """
        read = self.row(row)
        stepped = self.episode(read, sample)
        has_turn, episode = await arun(self.begin(stepped)), stepped.episode
        while has_turn and (said := await answer(episode)) is not None:
            has_turn = await arun(self.play(stepped, said))
        if has_turn and not episode.turns:
            return Score(None, why="the prompt does not fit the model's context", fault="infrastructure"), frozenset()
        (score,) = (await arun(stepped.scores())).values()
        replaced = (index for index, turn in enumerate(episode.turns) if turn.place in episode.state.replaced)
        return score, frozenset(replaced)

    def play(self, stepped: SteppedEpisode, said: str | Reply[Any], *, is_cut: bool = False) -> Steps[bool]:
        """Play a completion; returns whether the policy has another turn.

        Args:
            stepped: The episode.
            said: The completion, decoded, or with what it says; the calls of a text are JSON between `<tool_call>` and
                `</tool_call>`.
            is_cut: Whether the length limit ended the text.
        """
        if not isinstance(said, Reply):
            text = self.completion(said)
            reading = read_json_calls(text, is_thinking=False, is_cut=is_cut) if self._speaks_calls else None
            said = Reply(text, None, reading)
        return stepped.step(said.text, said.reading, said.answer)

    @property
    def sends_calls(self) -> bool:
        """Whether an episode's messages have calls and results, in OpenAI's form."""
        return self._takes_tools == "calls" and self.task.task.has_tools

    @property
    def _speaks_calls(self) -> bool:
        return self._takes_tools in ("calls", "text") and self.task.task.has_tools

    def messages(self, prompt: Prompt, *, describes: bool = False) -> Messages:
        """A prompt as messages; see `as_messages`.

        Args:
            prompt: The prompt.
            describes: Whether it describes tools that are called in text, as the first one does.
        """
        if self.sends_calls:
            chat = _as_chat(prompt)
            as_messages(self.task, chat[-1:] if chat[-1]["role"] == "assistant" else (), self.trainer)
            return sent_messages(chat, "reasoning_content")
        if self._speaks_calls:
            prompt = in_text_form(_as_chat(prompt), self.task.task.all_tools() if describes else ())
        return as_messages(self.task, prompt, self.trainer)

    def first_messages(self, row: Row) -> Messages:
        """The messages that an episode of a row of the task's own begins with, for a data set."""
        if self.task.task.game is None:
            return self.messages(self.task.prompt(row), describes=True)
        return self.messages(self.task.next_turn(row, ()).prompt or "")

    def scored(self, score: Score) -> Score:
        """The score, for a trainer whose way to leave out a completion is an exception.

        Raises:
            UnscoredError: it has abstained.
        """
        if score.abstained:
            raise UnscoredError(f"task {self.task.name!r}: not scored: {score.fault}: {score.why}")
        return score

    def value(self, score: Score) -> float:
        """The reward of a score; errors are those of `scored`."""
        value = self.scored(score).value
        assert value is not None
        return value

    def close(self) -> None:
        """Stop the workers."""
        self.scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def as_messages(task: BoundTask, prompt: Prompt, trainer: str) -> Messages:
    """A prompt as messages, for a trainer that takes no other; text becomes the user's message.

    Raises:
        UserError: it ends in a prefilled message by the assistant, which trainers close and do not continue, or shows
            calls of tools.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if prompt and prompt[-1]["role"] == "assistant":
        raise UserError(
            f"task {task.name!r}: its prompts end in a prefilled message by the assistant, which {trainer} would close "
            "and not continue. Use a template without a prefill, or our own trainer."
        )
    if any(set(message) - {"role", "content"} for message in prompt):
        raise UserError(
            f"task {task.name!r}: its prompts show calls of tools or thoughts, and {trainer}'s rows hold role and "
            "content of a message. Describe them in its content, or use our own trainer."
        )
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


ELSEWHERE = "Train it with grpo run, or with TRL by grpo_sdk.interop.trl.TrlTask."
"""Trainers of every task."""

WITH_TOOLS = (
    "Train it with grpo run, or in TRL, verifiers, OpenEnv, Inspect, SkyRL, ART, Atropos, verl (by its agent loop) or "
    "tinker-cookbook."
)
"""Where tasks with tools are trained."""

DOORS = {
    "AReaL": "the workflow samples one completion of a prompt",
    "ms-swift": "a reward gets finished completions",
    "NeMo-Gym": "the server verifies finished responses, and tools would be routes of its own",
    "NeMo-RL": "what an environment answers follows without the chat template",
    "open-instruct": "a verifier gets one completion",
    "OpenRLHF": "the prompt is rendered before the agent gets it, without tools",
    "prime-rl": "the exported taskset has no tools",
    "slime": "a reward gets finished samples",
    "verl": "the reward gets one completion (grpo_sdk.interop.verl.TaskAgentLoop plays episodes)",
}
"""Trainer -> what its door takes, so that no tool can be called there."""


_lock = threading.Lock()


def shared_adapter(spec: str, trainer: str, completes: Completes = "answer", **options: Any) -> TaskAdapter:
    """The process's adapter of a task, for functions that get its spec with every completion, from any thread.

    Args:
        spec: Spec of the task.
        trainer: Name of the trainer.
        completes: What it can hand over.
        **options: `workers`, `timeout_s` and `opponent_url` of the adapter.
    """
    with _lock:
        return _shared(spec, trainer, completes, **options)


_shared = lru_cache(maxsize=32)(TaskAdapter)


def _remade(sent: tuple[str, ...], trainer: str, completes: Completes, **options: Any) -> TaskAdapter:
    return TaskAdapter(received_task(*sent), trainer, completes, **options)


class Conversation:
    """One episode of a task.

    Args:
        adapter: The task.
        row: The problem.
        sample: Number of the rollout among those of the row, for the random numbers of an opponent; by default random.

    Attributes:
        episode: The episode.
        messages: Whole prompt of the next turn: the conversation so far, or in a game what the player sees.
    """

    def __init__(self, adapter: TaskAdapter, row: RowReference, sample: int | None = None) -> None:
        self._adapter, self._name = adapter, f"task {adapter.task.name!r}"
        self._stepped = adapter.episode(row, secrets.randbelow(2**31) if sample is None else sample)
        self.episode = self._stepped.episode
        self.messages: Messages = []

    @property
    def is_over(self) -> bool:
        """Whether no turn follows."""
        return self.episode.is_over

    def begin(self) -> Steps[Messages]:
        """Begin; returns the messages of the first turn.

        Raises:
            UnscoredError: there is no turn to play, e.g. because an opponent does not answer.
        """
        if not (yield from self._adapter.begin(self._stepped)):
            score = yield from self.score()
            raise UnscoredError(f"{self._name}: the episode ended before its first turn: {score.why}")
        self.messages = self._adapter.messages(self.episode.prompt, describes=True)
        return self.messages

    def reply(self, said: str | Reply[Any], *, is_cut: bool = False) -> Steps[Messages]:
        """Play a completion; returns the messages that follow it, or none where the episode is over.

        Arguments are those of `TaskAdapter.play`.
        """
        if not (yield from self._adapter.play(self._stepped, said, is_cut=is_cut)):
            return []
        if self._adapter.sends_calls:
            before, self.messages = len(self.messages), self._adapter.messages(self.episode.prompt)
            return self.messages[before + 1 :]
        following = self._adapter.messages(self.episode.added)
        said = self.episode.turns[-1].text
        answered = [*self.messages, {"role": "assistant", "content": said}] if self.episode.goes_on else []
        self.messages = [*answered, *following]
        return following

    def call(self, said: Reply[Any]) -> Steps[Messages]:
        """Play a completion whose calls a trainer has found; returns what follows, also where the episode is over.

        Where it has calls, that is one message for each, whether it was run or not.
        """
        following = yield from self.reply(said)
        return [dict(message) for message in self.episode.results] or following

    @property
    def scored_text(self) -> str:
        """An episode with tools and its results, by which it can be scored once more; empty where it has no end."""
        return self.episode.scored_texts().get("", "")

    def score_again(self, text: str) -> Steps[Score]:
        """Score an episode with tools by its `scored_text`, repeating its calls; the score may have abstained."""
        if not text:
            return Score(None, why="the log holds no episode that came to its end", fault="infrastructure")
        score: Score = yield self._adapter.scorer.submit(text, self.episode.row)
        return score

    def score(self) -> Steps[Score]:
        """Score the episode, also one that was cut off before its end; the score may have abstained."""
        scores = yield from self._stepped.scores()
        return next(iter(scores.values()))

    def replay(self, texts: Sequence[str]) -> Steps[Score]:
        """Play completions that were recorded, and score; those after the end of the episode are ignored.

        Raises:
            UnscoredError: there is none.
        """
        if not texts:
            raise UnscoredError(f"{self._name}: there is no completion to score")
        if self._adapter.task.has_turns:
            yield from self.begin()
        for text in texts if self._adapter.task.has_turns else texts[-1:]:
            yield from self.reply(text)
            if self.is_over:
                break
        return (yield from self.score())


def check_replayable(adapter: TaskAdapter) -> TaskAdapter:
    """The adapter, for a trainer that scores what was recorded, in which a model's moves are not.

    Raises:
        UserError: a model plays against the policy.
    """
    if adapter.opponent is not None and adapter.task.task.game is not None:
        raise UserError(
            f"task {adapter.task.name!r}: {adapter.trainer} scores the recorded completions, and a model's moves as "
            "the opponent are not among them. Choose an opponent that needs no model, e.g. opponent=random."
        )
    return adapter


def answer_text(content: str | None, reasoning: str | None = None) -> str:
    """A completion as the model wrote it, from a message whose reasoning was split off."""
    return f"<think>{reasoning}</think>{content or ''}" if reasoning else content or ""


def write_jsonl(
    adapter: TaskAdapter, record: Callable[[TaskAdapter, Row], Mapping[str, Any]], path: str | Path
) -> None:
    """Write the rows of a task as JSONL.

    Args:
        adapter: The task.
        record: Makes what is written of a row.
        path: The file.
    """
    with open(path, "wb") as file:
        file.writelines(orjson.dumps(record(adapter, row)) + b"\n" for row in adapter.task.rows())


def dataset_of(adapter: TaskAdapter, record: Callable[[TaskAdapter, Row], Mapping[str, Any]]) -> Any:
    """The rows of a task as a `datasets.Dataset`; arguments are those of `write_jsonl`."""
    import datasets

    return datasets.Dataset.from_list([record(adapter, row) for row in adapter.task.rows()])


def label_of(adapter: TaskAdapter, row: Row) -> str:
    """A row with the spec of its task as one text, for a trainer whose reward gets no more than a label."""
    return orjson.dumps({"task": adapter.task.spec, "row": row.model_dump_json()}).decode()


def read_label(label: object, trainer: str, written_by: str) -> tuple[str, str]:
    """Read a label of `label_of`.

    Args:
        label: The label.
        trainer: Name of the trainer, for the error.
        written_by: What writes labels, likewise.

    Returns:
        (spec of the task, row as JSON).

    Raises:
        DataError: it is something else.
    """
    try:
        fields = orjson.loads(label)  # type: ignore[arg-type] # a TypeError is one of ours
        return fields["task"], fields["row"]
    except (TypeError, KeyError, orjson.JSONDecodeError):
        raise DataError(f"{trainer}: a row's label is not of {written_by}, with which the data is written.") from None


def _as_chat(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as messages that may show calls."""
    return (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt


@contextmanager
def requires(package: str, install: str, *with_it: str, oldest: str = "") -> Iterator[None]:
    """Import a trainer within this context.

    Args:
        package: Name that Python imports.
        install: How to get it, for the error.
        *with_it: Packages that come with it, as Python imports them.
        oldest: First version that serves; needs a distribution of the package's name.

    Raises:
        UserError: it is not installed, or is older. An error within an installed package passes.
    """
    installed = version_of(package) if oldest else None
    if installed and _numbers(installed) < _numbers(oldest):
        raise UserError(f"this needs {package} {oldest} or newer, and {installed} is installed: {install}.")
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in (package, *with_it):
            raise
        raise UserError(f"this {needs(package, install)}.") from None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
