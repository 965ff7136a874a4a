"""Asks a resources server of NeMo-Gym.

    GET  /reverify_mode                         "stateless": nothing has to be told before
    POST /seed_session {the row}                else; its cookies go with the next request
    POST /verify {the row, "response": …}       {…, "reward": 1.0, "reward_components": {…}}

Read in nemo-gym 0.7.0, `nemo_gym/base_resources_server.py`. A completion that the server marks with `mask_sample`, or
with a class of failure, has no score.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from grpo_sdk import InfrastructureError, Moves, RemoteReply, RemoteTurn, Row
from grpo_tasks_gym.nemo_gym.records import REQUEST, NemoConfig, NemoRow
from grpo_tasks_gym.servers.requests import JsonClient, JsonReply, excerpt
from grpo_tasks_gym.servers.verdicts import Verdict, number_of, parts_of

STATELESS = "stateless"


class ResourcesServer:
    """Asks the server of a task.

    Args:
        config: Options of the task.

    Attributes:
        secrets: Environment variables that worker processes do not get.

    Raises:
        UserError: the server's token is not there.
    """

    def __init__(self, config: NemoConfig) -> None:
        self.secrets: tuple[str, ...] = (config.api_key_env,) if config.api_key_env else ()
        self._client, self._address = JsonClient(config), config.address
        self._mode = {"always": True, "never": False}.get(config.session)
        self._asking = asyncio.Lock()

    async def follow(self, moves: Moves, row: Row) -> RemoteTurn:
        """There is one turn."""
        return RemoteTurn(tuple(moves))

    async def reply(self, moves: Moves, row: Row) -> RemoteReply:
        """Have a completion verified.

        Raises:
            InfrastructureError: there is no reward.
            UserError: the server refuses the token.
        """
        assert isinstance(row, NemoRow)
        cookies: tuple[tuple[str, str], ...] = ()
        record = dict(row.record)
        if await self._needs_session():
            begun = await self._client.post(f"{self._address}/seed_session", record)
            cookies = self._checked(begun, "seed_session").cookies
        body = {**record, "response": response_of(str(moves[-1]), record[REQUEST])}
        content = self._checked(await self._client.post(f"{self._address}/verify", body, cookies), "verify").content
        if not isinstance(content, dict) or "reward" not in content:
            raise InfrastructureError(f"{self._address}/verify: a reply without a reward: {excerpt(content)}")
        instance = content.get("instance_config")
        is_masked = content.get("mask_sample") or (isinstance(instance, dict) and instance.get("mask_sample"))
        if is_masked or content.get("_ng_failure_class"):
            why = content.get("failure_reason") or content.get("_ng_failure_class") or "mask_sample"
            raise InfrastructureError(f"{self._address}/verify: not verified: {excerpt(why)}")
        reward = number_of(content["reward"], f"{self._address}/verify: 'reward'")
        parts = parts_of(content.get("reward_components"), f"{self._address}/verify: 'reward_components'")
        return Verdict(reward=reward).reply(parts)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _needs_session(self) -> bool:
        async with self._asking:  # one request, of which the others learn
            if self._mode is None:
                reply = await self._client.get(f"{self._address}/reverify_mode")
                if not reply.is_ok and reply.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
                    self._checked(reply, "reverify_mode")
                self._mode = reply.content != STATELESS
            return self._mode

    def _checked(self, reply: JsonReply, path: str) -> JsonReply:
        if not reply.is_ok:
            raise InfrastructureError(f"{self._address}/{path}: HTTP {reply.status}: {excerpt(reply.content)}")
        return reply


def response_of(text: str, request: dict[str, Any]) -> dict[str, Any]:
    """A completion as a response of OpenAI's Responses API, with one message.

    Args:
        text: The completion.
        request: Request that it answers.
    """
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": "resp_0",
        "object": "response",
        "created_at": 0,
        "model": str(request.get("model") or "policy"),
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
