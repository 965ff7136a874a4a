"""`logs/rollouts.jsonl`: every completion that a run trained on, with its prompt, row and score."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from grpo_sdk.errors import UserError
from grpo_sdk.records.jsonl import json_object, read_lines
from grpo_sdk.records.run_folder import check_run
from grpo_sdk.task.row import Message, Prompt, prompt_text
from grpo_sdk.task.score import Score
from grpo_sdk.task.spec import names_of

DifficultyTag = Literal["hard", "normal", "easy"]
"""Difficulty of a prompt by its pass rate."""


def _known_fields(score: Any) -> Any:
    """Drop the fields of a score that a newer version may have added."""
    return {key: score[key] for key in Score.__slots__ if key in score} if isinstance(score, dict) else score


class RolloutRecord(BaseModel):
    """One line of `logs/rollouts.jsonl`; fields that an older version did not write are None.

    Attributes:
        step: Optimizer step that the completion was sampled for, from 1.
        task: Spec of the task, as in `math.gsm8k?split=train`.
        identity: Hash of the task: its rows, prompts, rewards and version.
        group: Index of the group in the step's batch; its members answer one prompt.
        prompt_id: Identifier of the prompt in the run's sampling keys.
        row: Row of the task, as JSON.
        prompt: Prompt: text, or chat messages.
        text: Text of the completion, without special tokens.
        tokens: Number of tokens of the completion, end-of-sequence included.
        finish_reason: `stop`, or `length` if it was truncated.
        status: `scored`, or `abstained` if it could not be scored.
        score: Value, raw parts, validity, solved and why.
        reward: Reward from which the advantage was computed: the score's value with the soft overlong penalty.
        included: Whether the completion counts in the loss: scored, and not masked for truncation.
        pass_rate: Moving average of the prompt with `curriculum.enabled`, including this group; else the share of the
            group's scored completions that solved it.
        difficulty: `hard`, `normal` or `easy`: the pass rate compared with `curriculum.boundaries`.
        logprob: Log-probability of the whole completion under the sampler, in nats: the sum over its tokens.
        token_logprobs: Log-probability of each token, with `tracking.token_logprobs`.
        token_texts: Text of each token, likewise; a part of a character is `�`. None in a run of an earlier version.
        think_tokens: Number of tokens before `</think>`; 0 without such a tag.
        generate_s: Seconds in which the step's whole batch was sampled.
        conditions: Facts of the machine that the score depended on, if the task states any.
        score_s: Seconds that the validator, each reward and `tools()` took; None in a run of an earlier version, and
            where the scorer was killed.
        role: Role that the policy played, in a game; empty otherwise.
        turns: Number of turns; `text` holds all of them where there are several.
        messages: Who said what, in several turns, from the first completion on: role and text of each. In a game, the
            role of a position and of the result is empty. Empty of one completion, and in a run of an earlier version.
        scored_text: Text that was scored, where it is not `text`: the last completion of several turns, or the
            transcript of a game.
        predictions: Answers of the task's opponent; None where it has none or was not asked.
    """

    # Unknown fields were added by a newer version: they are ignored, not refused.
    model_config = ConfigDict(frozen=True, extra="ignore")

    step: int
    task: str
    identity: str = ""
    group: int
    row: dict[str, Any]
    text: str
    tokens: int
    finish_reason: Literal["stop", "length"]
    status: Literal["scored", "abstained"]
    score: Annotated[Score, BeforeValidator(_known_fields)]
    prompt_id: str | None = None
    prompt: Prompt | None = None
    reward: float | None = None
    included: bool | None = None
    difficulty: DifficultyTag | None = None
    pass_rate: float | None = None
    logprob: float | None = None
    token_logprobs: tuple[float, ...] | None = None
    token_texts: tuple[str, ...] | None = None
    think_tokens: int | None = None
    generate_s: float | None = None
    conditions: dict[str, str] | None = None
    score_s: dict[str, float] | None = None
    role: str = ""
    turns: int = 1
    messages: tuple[Message, ...] = ()
    scored_text: str | None = None
    predictions: tuple[str, ...] | None = None

    @property
    def is_single_turn(self) -> bool:
        """Whether `text` is the one completion of a task that is no game, which is what was scored."""
        return self.turns == 1 and not self.role

    @property
    def prompt_text(self) -> str:
        """The prompt as text: chat messages in order, each with its role; empty if it is not known."""
        return prompt_text(self.prompt or "")

    @property
    def token_surprisals(self) -> tuple[float, ...] | None:
        """Negative log-probability of each token; RL_Practice calls it token_entropy."""
        return None if self.token_logprobs is None else tuple(-each for each in self.token_logprobs)

    @property
    def row_id(self) -> str:
        """Id of the row."""
        return str(self.row.get("id", ""))


def rollouts_path(run_dir: Path) -> Path:
    """Return the path of a run's completions.

    Raises:
        UserError: the folder is not a run, or the run has no completions.
    """
    check_run(run_dir)
    path = run_dir / "logs" / "rollouts.jsonl"
    if not path.is_file():
        raise UserError(f"{run_dir} holds no completions: it has no logs/rollouts.jsonl.")
    return path


def read_rollouts(
    run_dir: Path, *, step: int | None = None, task: str | None = None, problems: list[str] | None = None
) -> Iterator[RolloutRecord]:
    """Read a run's completions in the order in which they were sampled, in constant memory.

    Args:
        run_dir: Folder of the run.
        step: Read only this step.
        task: Read only this task, given by its spec, its name without options or its option `name`.
        problems: Receives the damaged lines, with file, line and field; None warns of them. They are left out.

    Raises:
        UserError: the folder is not a run, or the run has no completions; raised by the call, not by the iteration.
        DataError: the log cannot be read.
    """

    def record(line: bytes) -> RolloutRecord | None:
        fields = json_object(line)
        if step is not None and fields.get("step") != step:
            return None
        if task is not None and task not in names_of(str(fields.get("task"))):
            return None
        try:
            return RolloutRecord.model_validate(fields)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None

    return (each for _, each in read_lines(rollouts_path(run_dir), record, problems) if each is not None)
