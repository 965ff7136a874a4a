"""verl's agent loop for a task: several turns, games, tools, stop strings; see `grpo_sdk.interop.verl`.

- name: grpo                                                       # a file for …rollout.agent.agent_loop_config_path
  _target_: grpo_sdk.interop.verl.TaskAgentLoop                   # and …rollout.agent.default_agent_loop=grpo
"""

from __future__ import annotations

import logging
import time
from typing import Any
from uuid import uuid4

from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import requires, shared_adapter
from grpo_sdk.killable.pool import default_workers
from grpo_sdk.scoring.parts import log_values

with requires("verl", "pip install verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

logger = logging.getLogger(__name__)


class TaskAgentLoop(AgentLoopBase):
    """An episode of the task that a row's `data_source` names, scored at its end.

    A turn whose prompt continues the tokens of the turn before is part of the same sequence, with a mask that is 0 on
    what the model did not write; another turn, as of a game, is a sequence of its own, to which verl gives the
    episode's reward too. An episode that could not be scored has no sequence: verl leaves it out of its group.

    Args:
        *arguments: Those of verl.
        workers: Scoring processes; by default this agent worker's share of the usable cores.
        opponent_url: Endpoint that plays the tasks' opponent.
        **options: Those of verl.

    Raises:
        UserError: verl's deprecated trainer runs, which takes no episode without a sequence.
    """

    def __init__(
        self, *arguments: Any, workers: int | None = None, opponent_url: str | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        if not self.config.trainer.use_v1:
            raise UserError(
                "the agent loop of a task needs trainer.use_v1=true, verl's default: the deprecated trainer cannot "
                "leave out what could not be scored."
            )
        share = max(1, default_workers() // self.rollout_config.agent.num_workers)
        self._options: dict[str, Any] = {"workers": workers or share, "opponent_url": opponent_url}

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Play an episode of a row; verl passes the sampling parameters and the row's columns."""
        adapter = shared_adapter(row["data_source"], "verl", "episode", takes_tools="text", **self._options)
        encoder = None
        if adapter.task.task.has_tools:
            encoder = adapter.encoder(self.tokenizer, **self.apply_chat_template_kwargs)
        if stop := adapter.task.task.stop:
            sampling_params = {**sampling_params, "stop": list(stop)}
        turns: list[AgentLoopOutput] = []
        request_id, priority = uuid4().hex, int(row.get("priority", 0))
        if getattr(self.rollout_config, "full_determinism", False):
            request_id = f"det-{priority}"

        async def answer(episode: Episode[Any]) -> str | Reply[Any] | None:
            sampling = sampling_params
            if encoder is None:
                prompt_ids = await self.ct_build_initial_tokens(adapter.messages(episode.prompt))
            else:
                prompt_ids = list(encoder.prompt_ids(episode))
                if (room := self._room(prompt_ids, turns)) <= 0:
                    return None
                sampling = {**sampling, "max_tokens": min(room, adapter.task.task.max_completion_length or room)}
            turns.append(turn := await self._turn(prompt_ids, sampling, request_id, priority))
            if encoder is not None:
                return encoder.sampled(prompt_ids, turn.response_ids)
            return str(self.tokenizer.decode(turn.response_ids, skip_special_tokens=True))

        sample = int(row.get("session_id", 0))
        score, untrained = await adapter.aplay(row["reward_model"]["ground_truth"], answer, sample)
        if score.abstained:
            logger.warning("left out: %s", score.why)
            if self.config.algorithm.filter_groups.enable:  # its filter needs a sequence of each finished group
                adapter.scored(score)
            return []
        outputs = self._joined([turn for index, turn in enumerate(turns) if index not in untrained])
        if not outputs:
            return []
        outputs[-1].reward_score = score.value
        outputs[-1].extra_fields["reward_extra_info"] = {**log_values(adapter.task, score), "score": score.value}
        return outputs

    def _room(self, prompt_ids: list[int], turns: list[AgentLoopOutput]) -> int:
        """Tokens that verl has for the next completion of an episode with tools."""
        start = len(prompt_ids)  # of the response in the sequence that the prompt continues
        for turn in reversed(turns):
            sampled = [*turn.prompt_ids, *turn.response_ids]
            if prompt_ids[: len(sampled)] != sampled:
                break
            start = len(turn.prompt_ids)
        has_place = start <= self.rollout_config.prompt_length
        return int(self.rollout_config.response_length - (len(prompt_ids) - start)) if has_place else 0

    async def _turn(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, priority: int
    ) -> AgentLoopOutput:
        """Sample one completion."""
        start = time.perf_counter()
        output = await self.server_manager.generate(
            request_id=request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, priority=priority
        )
        seconds = time.perf_counter() - start
        merged, mask, logprobs = await self.ct_merge_assistant_token(
            prompt_ids,
            output.token_ids,
            [],
            [] if output.log_probs else None,
            assistant_logprobs=output.log_probs or None,
        )
        split, limit = len(merged.token_ids) - len(mask), self.rollout_config.response_length
        return AgentLoopOutput(
            prompt_ids=merged.token_ids[:split],
            response_ids=merged.token_ids[split:][:limit],
            response_mask=mask[:limit],
            response_logprobs=logprobs[:limit] if logprobs else None,
            routed_experts=None if output.routed_experts is None else output.routed_experts[: split + limit],
            num_turns=2,
            metrics={
                "generate_sequences": seconds,
                "num_preempted": -1 if output.num_preempted is None else output.num_preempted,
            },
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": []},
        )

    def _joined(self, turns: list[AgentLoopOutput]) -> list[AgentLoopOutput]:
        """Join each turn to the one before where its tokens continue that one's."""
        sequences = turns[:1]
        for turn in turns[1:]:
            last = sequences[-1]
            context = turn.prompt_ids[len(last.prompt_ids) + len(last.response_ids) :]
            length = len(last.response_ids) + len(context) + len(turn.response_ids)
            continues = [*last.prompt_ids, *last.response_ids, *context] == turn.prompt_ids
            if not continues or length > self.rollout_config.response_length:
                sequences.append(turn)
                continue
            last.response_ids = [*last.response_ids, *context, *turn.response_ids]
            last.response_mask = [*last.response_mask, *[0] * len(context), *turn.response_mask]
            if last.response_logprobs is not None:
                last.response_logprobs = [*last.response_logprobs, *[0.0] * len(context), *turn.response_logprobs]
            last.routed_experts = turn.routed_experts
            last.num_turns += turn.num_turns
            last.metrics.generate_sequences += turn.metrics.generate_sequences
            last.extra_fields.update(turn.extra_fields)
        return sequences
