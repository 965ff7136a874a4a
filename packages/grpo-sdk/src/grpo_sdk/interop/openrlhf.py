"""Any task in OpenRLHF: an agent, and a reward function.

    from grpo_sdk.interop.openrlhf import agent_executor          # agent.py, for --train.agent_func_path agent.py
    AgentExecutor = agent_executor("math.gsm8k")

    from grpo_sdk.interop.openrlhf import TaskReward              # reward.py, for --reward.remote_url reward.py
    reward_func = TaskReward("math.gsm8k")

`grpo export openrlhf TASK DIR` writes rows, these files and the command line. The label of a row is the row as JSON.

Prefer the agent. OpenRLHF 0.11.2 has no way to leave a sample out of its group: a reward function that cannot score a
completion ends the run, with an error of OpenRLHF that does not name the reason. The agent samples another completion
in its place, and ends the run with the reason after several in a row.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from grpo_sdk.chat.encode import encode_continuation, encode_prompt
from grpo_sdk.episodes.episode import Episode
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import ELSEWHERE, TaskAdapter, requires
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.marks import after_prompt
from grpo_sdk.task.row import Prompt, Row

if TYPE_CHECKING:
    from openrlhf.utils.agent import AgentExecutorBase

__all__ = ["TaskReward", "agent_executor", "record"]

ATTEMPTS = 4
"""Completions in a row that may go unscored before an agent ends the run."""

logger = logging.getLogger(__name__)


class TaskReward:
    """A task of one turn as OpenRLHF's `reward_func`.

    Args:
        task: Task or its spec.
        **options: `workers`, `timeout_s` and `opponent_url` of a `TaskAdapter`.

    Raises:
        UserError: OpenRLHF's reward cannot score the task; says why.
    """

    def __init__(self, task: AnyTask, **options: Any) -> None:
        self.adapter = TaskAdapter(task, "OpenRLHF", **options)

    def __call__(self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
        """Score completions.

        Args:
            queries: Prompt and completion, decoded with special tokens.
            prompts: Prompts.
            labels: Rows as JSON.

        Raises:
            UnscoredError: one could not be scored; OpenRLHF's run ends, and the reason is logged.
            UserError: a query does not contain its prompt.
        """
        import torch  # here: what else scores does without

        texts = [after_prompt(prompt, query) for prompt, query in zip(prompts, queries, strict=True)]
        scores = self.adapter.score(texts, labels)
        try:
            values = [self.adapter.value(score) for score in scores]
        except UnscoredError as error:
            logger.error("%s; use agent_executor(), which samples another completion.", error)
            raise
        logged = [log_values(self.adapter.task, score) for score in scores]
        logs = {name: torch.tensor([each[name] for each in logged]) for name in logged[0]}
        return {"rewards": torch.tensor(values), "scores": torch.tensor(values), "extra_logs": logs}


def agent_executor(task: AnyTask, *, attempts: int = ATTEMPTS, **options: Any) -> type[AgentExecutorBase]:
    """Return a task of one turn or several as OpenRLHF's `AgentExecutor`.

    Args:
        task: Task or its spec.
        attempts: Completions in a row that may go unscored before the run ends.
        **options: `workers`, `timeout_s` and `opponent_url` of a `TaskAdapter`.

    Raises:
        UserError: OpenRLHF is not installed, or cannot train the task.
    """
    with requires("openrlhf", "pip install openrlhf"):
        from openrlhf.utils.agent import AgentExecutorBase
    adapter = TaskAdapter(task, "OpenRLHF", "episode", **options)
    if adapter.task.task.game is not None:
        raise UserError(
            f"task {adapter.task.name!r} is a game, whose turns have prompts of their own; OpenRLHF trains an episode "
            f"as one sequence. {ELSEWHERE}"
        )
    samples = itertools.count()

    class TaskExecutor(AgentExecutorBase):  # OpenRLHF makes the object, without arguments
        """Plays episodes of the task."""

        async def execute(
            self,
            prompt: str,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """Play an episode of a row, again where it could not be scored."""
            for _ in range(attempts):
                sequence = _Sequence(prompt, sampling_params, max_length, hf_tokenizer, llm_engine, adapter)
                score, _ = await adapter.aplay(label, sequence.answer, next(samples))
                if not score.abstained:
                    break
                logger.warning("not scored, sampling another completion: %s", score.why)
            reward = adapter.value(score)
            logs = log_values(adapter.task, score)
            return {"prompt": prompt, "label": label, "images": images, "mm_train_inputs": None, "reward": reward,
                    "scores": reward, "extra_logs": logs, **sequence.response()}  # fmt: skip

    return TaskExecutor


class _Sequence:
    """The tokens of one episode while it is sampled."""

    def __init__(
        self, prompt: str, sampling: Any, max_length: int, tokenizer: Any, engine: Any, adapter: TaskAdapter
    ) -> None:
        self._given, self._tokenizer, self._engine, self._adapter = prompt, tokenizer, engine, adapter
        self._sampling, self._max_length = sampling, max_length
        self._tokens: list[int] = []
        self._ranges: list[tuple[int, int]] = []
        self._logprobs: list[float] = []
        self._is_truncated = False

    async def answer(self, episode: Episode[Any]) -> str | None:
        """Sample a turn; None where the sequence is full."""
        context = self._continuation(episode) if self._ranges else self._beginning(episode.prompt)
        self._logprobs += [0.0] * (len(context) - len(self._tokens))
        self._tokens = context
        budget = self._max_length - len(self._tokens)
        if budget <= 0:
            return None
        sampling = deepcopy(self._sampling)
        sampling.max_tokens = min(sampling.max_tokens or budget, budget)
        if stop := self._adapter.task.task.stop:
            sampling.stop = list(stop)
        (output,) = (await self._engine.generate(self._tokens, sampling)).outputs
        tokens = list(output.token_ids)
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=False))
        self._ranges.append((len(self._tokens), len(self._tokens) + len(tokens)))
        self._tokens = self._tokens + tokens
        if output.logprobs is not None:
            self._logprobs += [step[token].logprob for token, step in zip(tokens, output.logprobs, strict=True)]
        self._is_truncated = output.finish_reason == "length"
        return text

    def response(self) -> dict[str, Any]:
        """What OpenRLHF trains on."""
        return {
            "observation_tokens": self._tokens,
            "action_ranges": self._ranges,
            "rollout_log_probs": self._logprobs if self._sampling.logprobs is not None else None,
            "truncated": self._is_truncated,
        }

    def _beginning(self, prompt: Prompt) -> list[int]:
        """Tokens of the first prompt: text of the task's own as our engines encode it, else as OpenRLHF gives it."""
        if prompt == self._given:
            return list(encode_prompt(self._tokenizer, prompt))
        if isinstance(prompt, str) and self._adapter.task.has_turns:
            raise UserError(
                f"task {self._adapter.task.name!r} has several turns, whose prompts go on from its own text, "
                f"{prompt!r:.60}, and OpenRLHF gives the agent {self._given!r:.60}: leave out "
                "--data.apply_chat_template and --data.input_template."
            )
        return list(self._tokenizer(self._given, add_special_tokens=False)["input_ids"])

    def _continuation(self, episode: Episode[Any]) -> list[int]:
        """Tokens so far, as they were sampled, and those of what the task said after the last turn."""
        self._adapter.messages(episode.prompt)  # refuses a prefill, which the template would close
        (start, _), last = self._ranges[-1], episode.turns[-1]
        before, sampled = self._tokens[:start], self._tokens[start:]
        return list(encode_continuation(self._tokenizer, before, sampled, last.prompt, last.text, episode.prompt))


def record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    """One row of OpenRLHF's data, for `--data.input_key prompt --data.label_key label`.

    Prompts that are messages need `--data.apply_chat_template`; those that are text are sampled as they are, without.
    """
    prompt = adapter.task.prompt(row)
    return {"prompt": prompt if isinstance(prompt, str) else adapter.messages(prompt), "label": row.model_dump_json()}
