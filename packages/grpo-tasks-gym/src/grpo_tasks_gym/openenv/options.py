"""Options and rows of `openenv.remote`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator

from grpo_sdk import Message, Row
from grpo_sdk.data import MAX_GENERATED, CommaSeparated
from grpo_tasks_gym.servers.options import ServerConfig, check_address

MAX_TURNS = 64


class OpenEnvConfig(ServerConfig):
    """Options of `openenv.remote`.

    Attributes:
        url: Address of the environment: everything before `/ws`.
        size: Rows; each is begun once when rows are loaded, since its first observation is the prompt.
        rows: `tasks` are those that the server lists, `seeds` are whole numbers from `seed` on; `auto` takes what the
            server lists, if it does.
        actions: What an action is: `text`, a completion; or `tools`: the environment's actions are calls of tools
            (an MCPEnvironment), which become the task's. Workers then hold the connections, one for each episode, and
            the token.
        max_turns: Most turns of an episode.
        reward: `sum` of the steps' rewards, or the `last` one.
        action: Field of the action that holds the completion; by default its only text.
        constants: Other fields of the action, with their values: `tool:guess,mode:fast`.
        observation: Field of the observation that is shown; by default `prompt`, `messages`, or its only text. `*` is
            the whole observation as JSON.
        instruction: Text before the first observation.
        chat: Whether an observation that is text becomes a message of the user, for models with a chat template.
        sessions: Most connections at once. Where the server allows fewer, or rollouts are more, episodes are played
            again from their start, which the server must do alike.
        solved_at: Reward from which an episode counts as solved, where the server does not say it.
    """

    url: str = ""
    size: int | None = Field(default=64, ge=1, le=MAX_GENERATED)
    rows: Literal["auto", "tasks", "seeds"] = "auto"
    actions: Literal["text", "tools"] = "text"
    max_turns: int = Field(default=8, ge=1, le=MAX_TURNS)
    reward: Literal["sum", "last"] = "sum"
    action: str = ""
    constants: CommaSeparated[str] = ()
    observation: str = ""
    instruction: str = ""
    chat: bool = False
    sessions: int = Field(default=256, ge=1, le=4096)
    solved_at: float = Field(default=1.0, allow_inf_nan=False)

    @field_validator("path")
    @classmethod
    def _no_path(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("rows come from the environment; this task reads no file")
        return value

    @property
    def address(self) -> str:
        """Address of the environment.

        Raises:
            UserError: there is none. Errors of options repeat their values, which may hold a secret: not this one.
        """
        return check_address("url", self.url)


class EpisodeRow(Row):
    """A row.

    Attributes:
        reset: Arguments of the episode's `reset`.
        observation: First observation, as it is shown: a text, or chat messages.
        fields: Fields of action and observation that are used.
    """

    reset: dict[str, int | str]
    observation: str | tuple[dict[str, str], ...]
    action: str
    shown: str


class ToolsRow(EpisodeRow):
    """A row of an environment whose actions are calls of tools.

    Attributes:
        tools: Number by which the list of tools is recognized.
    """

    tools: int


def as_messages(shown: Sequence[Mapping[str, str]]) -> tuple[Message, ...]:
    """Chat messages of what is shown."""
    return tuple(Message(role=each["role"], content=each["content"]) for each in shown)
