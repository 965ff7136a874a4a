"""`logs/rollouts.jsonl`: every completion that a run trained on, with its row, its score and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from grpo_core.checkpoints import check_run
from grpo_core.errors import DataError, UserError
from grpo_core.task.score import Score
from grpo_core.tracking.jsonl import read_jsonl

DifficultyTag = Literal["hard", "normal", "easy"]
"""A prompt's, by its pass rate."""


def _known_fields(score: Any) -> Any:
    """A score as the file holds it, less what a newer version may have added."""
    return {key: score[key] for key in Score.__slots__ if key in score} if isinstance(score, dict) else score


class RolloutRecord(BaseModel):
    """One line of `logs/rollouts.jsonl`; a field that an older run did not write is None.

    Attributes:
        step: Optimizer step that it was sampled for, from 1.
        task: The task's spec, as in `math.gsm8k?split=train`.
        identity: Hash of the task: of its rows, prompts, rewards and version.
        group: Index of the group in the step's batch; its members answer one prompt.
        prompt_id: Names the prompt in the run's sampling keys.
        row: The problem, as JSON.
        prompt: Text, or chat messages.
        text: The completion, without special tokens.
        tokens: Tokens of the completion, end-of-sequence included.
        finish_reason: `stop`, or `length` where it was truncated.
        status: `scored`, or `abstained`: it could not be.
        score: Value, raw parts, validity, solved and why.
        reward: What the advantage was computed from: the score's value with the soft overlong penalty.
        included: Whether it counts in the loss: scored, and not masked for truncation.
        pass_rate: The prompt's moving average with `curriculum.enabled`, this group's result included; else the share
            of the group's scored completions that solved it.
        difficulty: `hard`, `normal` or `easy`: the pass rate against `curriculum.boundaries`.
        logprob: Of the whole completion under the sampler, in nats: the sum over its tokens.
        token_logprobs: Of each token, with `tracking.token_logprobs`.
        think_tokens: Tokens before `</think>`; 0 where the completion has no such tag.
        generate_s: Seconds in which the step's whole batch was sampled.
        conditions: What on the machine the score depended on, for a task that says so.
    """

    # Unknown fields are a newer version's: they are left out, not refused.
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
    prompt: str | tuple[dict[str, str], ...] | None = None
    reward: float | None = None
    included: bool | None = None
    difficulty: DifficultyTag | None = None
    pass_rate: float | None = None
    logprob: float | None = None
    token_logprobs: tuple[float, ...] | None = None
    think_tokens: int | None = None
    generate_s: float | None = None
    conditions: dict[str, str] | None = None

    @property
    def prompt_text(self) -> str:
        """The prompt as text: chat messages one after the other, each with its role; empty where it is not known."""
        if self.prompt is None or isinstance(self.prompt, str):
            return self.prompt or ""
        return "\n".join(f"{message.get('role', '')}: {message.get('content', '')}" for message in self.prompt)

    @property
    def token_surprisals(self) -> tuple[float, ...] | None:
        """−log-prob of each token: what RL_Practice calls token_entropy."""
        return None if self.token_logprobs is None else tuple(-each for each in self.token_logprobs)

    @property
    def row_id(self) -> str:
        """The row's id."""
        return str(self.row.get("id", ""))


def rollouts_path(run_dir: Path) -> Path:
    """Where a run keeps its completions.

    Raises:
        UserError: the folder is no run, or the run has none.
    """
    check_run(run_dir)
    path = run_dir / "logs" / "rollouts.jsonl"
    if not path.is_file():
        raise UserError(f"{run_dir} holds no completions: it has no logs/rollouts.jsonl.")
    return path


def read_rollouts(run_dir: Path, *, step: int | None = None, task: str | None = None) -> Iterator[RolloutRecord]:
    """Read a run's completions in the order in which they were made, in constant memory.

    Args:
        run_dir: The run's folder.
        step: Only of this step.
        task: Only of this task: its spec, or its name without options.

    Raises:
        UserError: the folder is no run, or the run has no completions; at the call, not at the first line.
        DataError: a line is corrupt; names file, line and field.
    """
    return _records(rollouts_path(run_dir), step, task)


def _records(path: Path, step: int | None, task: str | None) -> Iterator[RolloutRecord]:
    for number, line in read_jsonl(path):
        if step is not None and line.get("step") != step:
            continue
        if task is not None and task not in (line.get("task"), str(line.get("task")).partition("?")[0]):
            continue
        try:
            yield RolloutRecord.model_validate(line)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in problem["loc"])
            raise DataError(f"{path}: line {number} is corrupt: {field}: {problem['msg']}.") from None
