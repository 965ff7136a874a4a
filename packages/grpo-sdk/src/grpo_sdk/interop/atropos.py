"""Any task in Atropos, as an environment that sends groups of rollouts to its trainer API.

    # environment.py, for: python environment.py serve --env.task math.gsm8k --openai.server_type vllm …
    from grpo_sdk.interop.atropos import TaskEnv
    TaskEnv.cli()

A task's tools are called in text: a system message describes them, and results are messages of the user. A rollout that
cannot be scored is sampled once more; if that fails, too, its group is not sent. Read in atroposlib 0.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from statistics import fmean
from typing import Any

from pydantic import Field

from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, requires, shared_adapter
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.score import Score

with requires("atroposlib", "pip install atroposlib"):
    from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataGroup


logger = logging.getLogger(__name__)


class TaskEnvConfig(BaseEnvConfig):
    """Configuration of the environment.

    Attributes:
        task: Spec of the task: `math.gsm8k`.
        test_task: Spec of a task that is evaluated: `math.gsm8k?split=test&size=100`.
        temperature: Temperature of the rollouts.
        seed: Seed of the order of the rows.
    """

    task: str = Field(default="", description="Spec of the task, e.g. math.gsm8k")
    test_task: str | None = Field(default=None, description="Spec of a task to evaluate, e.g. math.gsm8k?split=test")
    temperature: float = Field(default=1.0, description="Temperature of the rollouts")
    seed: int = Field(default=0, description="Seed of the order of the rows")


class TaskEnv(BaseEnv):
    """Rollouts of a task: one completion, or turn after turn."""

    name = "grpo"
    env_config_cls = TaskEnvConfig

    async def setup(self) -> None:
        """Load the task.

        Raises:
            UserError: there is no task, or Atropos cannot train it.
        """
        if not self.config.task:
            raise UserError("no task: give --env.task, e.g. math.gsm8k; `grpo tasks` lists them.")
        self._adapter = _adapter(self.config.task)
        self._items = self._adapter.shuffled(self.config.seed)
        self._logged: dict[str, list[float]] = defaultdict(list)
        self._evaluated: dict[str, float] = {}

    async def get_next_item(self) -> str:
        """The next row, as JSON."""
        return next(self._items)

    async def collect_trajectories(self, item: str) -> tuple[ScoredDataGroup | None, list[Any]]:
        """Roll a row out; the group is None where rollouts of it cannot be scored."""
        size = self.config.group_size
        rollouts = await self._rollouts(item, range(size))
        if missing := size - len(rollouts):
            rollouts += await self._rollouts(item, range(size, size + missing))
        if len(rollouts) < size:
            return None, []
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[])
        for node, value in rollouts:
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["scores"].append(value)
        return group, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Play the rows of `test_task` once, at temperature 0, and log the means."""
        if self.config.test_task is None:
            return
        adapter = _adapter(self.config.test_task)
        values: dict[str, list[float]] = defaultdict(list)

        async def one(row: str) -> None:
            if rollout := await self._rollout(adapter, row, 0, 0.0, values):
                values["reward"].append(rollout[1])

        await asyncio.gather(*(one(row.model_dump_json()) for row in adapter.task.rows()))
        self._evaluated = {f"eval/{name}": fmean(each) for name, each in values.items()}
        await self.evaluate_log(dict(self._evaluated), task_name=adapter.task.name)

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the means of `solved`, `valid` and every part since the last time, with Atropos' own metrics."""
        means = {f"train/{name}": fmean(values) for name, values in self._logged.items()}
        self._logged.clear()
        evaluated, self._evaluated = self._evaluated, {}
        await super().wandb_log({**(wandb_metrics or {}), **means, **evaluated})

    async def _rollouts(self, row: str, samples: range) -> list[tuple[Any, float]]:
        """Tokens and reward of the rollouts that could be scored."""
        temperature = self.config.temperature
        rollouts = [self._rollout(self._adapter, row, sample, temperature, self._logged) for sample in samples]
        return [each for each in await asyncio.gather(*rollouts) if each is not None]

    async def _rollout(
        self, adapter: TaskAdapter, row: str, sample: int, temperature: float, values: dict[str, list[float]]
    ) -> tuple[Any, float] | None:
        """Play an episode and log it in `values`; returns its tokens and its reward, None where it has none."""
        try:
            node, score = await self._play(adapter, row, sample, temperature)
        except UnscoredError as error:
            logger.warning("%s", error)
            values["abstained_rate"].append(1.0)
            return None
        for name, value in {"abstained_rate": 0.0, **log_values(adapter.task, score)}.items():
            values[name].append(value)
        return node, adapter.value(score)

    async def _play(self, adapter: TaskAdapter, row: str, sample: int, temperature: float) -> tuple[Any, Score]:
        """Play an episode; returns its tokens and its score, which has not abstained."""
        conversation = Conversation(adapter, row, sample)
        messages = list(await arun(conversation.begin()))
        async with self.server.managed_server(tokenizer=self.tokenizer) as server:
            while True:
                completion = await server.chat_completion(
                    messages=messages, n=1, max_tokens=self.config.max_token_length, temperature=temperature
                )
                choice = completion.choices[0]
                text, is_cut = choice.message.content or "", choice.finish_reason == "length"
                following = await arun(conversation.reply(text, is_cut=is_cut))
                if conversation.is_over:
                    break
                messages += [{"role": "assistant", "content": text}, *following]
            nodes = server.get_state()["nodes"]
        if len(nodes) != 1:
            raise UserError(
                f"task {adapter.task.name!r}: the chat template changes earlier turns, so that the turns of an episode "
                "are no sequence of tokens that Atropos can train on. Choose another template."
            )
        return nodes[0], adapter.scored(await arun(conversation.score()))


def _adapter(spec: str) -> TaskAdapter:
    return shared_adapter(spec, "Atropos", "episode", takes_tools="text")
