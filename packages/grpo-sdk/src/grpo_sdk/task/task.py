"""A verifiable task, as its author writes it."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import asked_for, check_function, name_of
from grpo_sdk.task.composition import Composer, RewardSpec, check_composer, reward_specs, weighted_sum
from grpo_sdk.task.evaluation import EvaluationDefaults
from grpo_sdk.task.exemptions import check_exemptions
from grpo_sdk.task.group_rewards import group_reward_specs, is_group_reward
from grpo_sdk.task.judging import JudgedReward
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.remote import Remote
from grpo_sdk.task.row import Message, Prompt, Row, TaskConfig
from grpo_sdk.task.tools.environment import Environment, check_environment
from grpo_sdk.task.tools.mcp_server import McpServer
from grpo_sdk.task.tools.tool import Tool, tools_of

if TYPE_CHECKING:
    from grpo_sdk.task.game.rules import Game

_tools_of: Callable[[Any, type | None], tuple[Tool, ...]] = lru_cache(maxsize=256)(tools_of)


@lru_cache(maxsize=256)
def _tools_of_server(server: McpServer) -> tuple[Tool, ...]:
    from grpo_sdk.task.tools.mcp_session import tools_of_server  # which imports asyncio

    return tools_of_server(server)


TASK_CONTRACT_VERSION = 1
"""Version of the types on this page; changes are announced a minor version ahead."""

_CALLS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "load": (("config",), 1),
    "prompt": (("row", "config"), 1),
    "validate": (("text", "row", "config", "texts", "calls", "environment", "turns"), 2),
    "solved": (("answer", "row", "text", "parts", "config", "calls", "environment"), 2),
    "demos": (("config",), 1),
    "respond": (("text", "row", "turn", "config", "texts"), 3),
    "max_turns": (("config",), 1),
    "opponent": (("config",), 1),
    "conditions": (("config",), 1),
    "metrics": (("scores",), 1),
    "evaluation": (("config",), 1),
    "remote": (("config",), 1),
    "specialize": (("config", "task"), 1),
}
"""Contribution -> what it may ask for by name, and how many of these an author may rename."""

Order = Literal["shuffled", "ladder"]
"""Order of the rows in training: shuffled epochs, or by difficulty as the rows below are solved."""
OnTimeout = Literal["abstain", "fail"]
Ends = Literal["no_call", "tool"]
OnFailure = Literal["abstain", "result"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Task:
    """A verifiable task: a name and four contributions; everything else has a default.

    Callables take their arguments by the names below and may also ask for `config`.

    Attributes:
        name: Name within the plugin; users write `plugin.name`.
        load: `(config)` -> iterable of rows: the dataset loader.
        prompt: `(row)` -> str or chat messages: the prompt template.
        validate: `(text, row)` -> a typed answer, or raises `Invalid(reason)`. With several turns, `text` is the last
            turn's; `texts`, if it takes that, are those of all turns. With tools it may take `calls` and `environment`
            as rewards do, and `turns`, each a text with its calls.
        rewards: Functions of answer, row, text, config (and predictions; with tools of calls and environment), marked
            with `@reward`; beside them functions of all answers to a prompt, marked with `@group_reward`.
        config: Class of its options.
        row: Class of its rows; by default read from `load`'s return annotation.
        version: Changed by the author when scores change; part of the identity.
        compose: `weighted_sum(…)`, `graduated(…)` or `ladder(…)`.
        solved: `(answer, row, text, parts)` -> bool; by default every part that is no penalty is at its maximum.
        stop: Strings that end a completion, matched on decoded text; the text keeps the string.
        max_completion_length: Tokens a completion of this task may need, if fewer than the trainer's.
        default_model: Default of `--model`.
        timeout_s: Limit of scoring one completion.
        on_timeout: Meaning of a completion whose time runs out, or whose text is too long to be scored: `abstain`, or
            `fail`: the completion is wrong, and earns what an invalid empty one does. A crash and an infrastructure
            failure always abstain.
        opponent: See `Opponent`; or `(config)` -> one, where options decide about it.
        order: `shuffled`, or `ladder`: rows of a higher difficulty come when those below are solved.
        demos: `(config)` -> (prompt, completion) pairs for a warm start, where rows have no gold.
        respond: `(text, row, turn)` -> what the conversation goes on with after the completion of turn 1, 2, …, or
            None: feedback, a tool's answer. Text goes on a text; messages, or text as the user's, go on messages.
            `texts` are the completions of all turns so far.
        max_turns: Bound on the turns, or `(config)` -> the bound, where options decide about it; the last turn's
            completion is scored.
        tools: Functions marked with `@tool` that the policy may call; their results go on with the conversation. Those
            of an MCP server are given by `mcp`.
        environment: Class of the state of an episode, whose marked methods are tools, too; see `Environment`.
        ends: What ends an episode with tools before `max_turns`: a turn without a call (`no_call`), or only a tool
            that is marked `@tool(ends=True)` (`tool`), which always does.
        on_tool_failure: Meaning of a tool that hangs or crashes: the episode abstains, which names the tool
            (`abstain`), or goes on with that as the result (`result`).
        max_calls: Calls of a turn that are answered.
        exempt: Conformance checks that the task does not hold (see `grpo check`) -> the printed reason.
        conditions: `(config)` -> name -> text: what on this machine the scores depend on, as a sandbox's level; printed
            once, and recorded with every score. Cheap: it runs before anything else of the task.
        metrics: `(scores)` -> name -> number: numbers of a batch beyond the means of its parts. A name holds a `/`.
        evaluation: `(config)` -> how it is evaluated unless the user says otherwise; see `EvaluationDefaults`.
        game: The game that the task was made of, by `grpo_sdk.task.game.game_task`.
        remote: `(config)` -> a `Remote`: asks the server that plays and judges the task, from the process that scores
            and many completions at once. `validate` and the rewards get the server's reply for the completion.
        specialize: `(config)` -> the task under these options, where they decide about more than its rows, e.g. about
            its rewards. It takes the place of this one, and has its name and options. `task` is this one, which
            another plugin may have made by `dataclasses.replace`.
    """

    name: str
    load: Callable[..., Iterable[Row]]
    prompt: Callable[..., Prompt | Sequence[Message]]
    validate: Callable[..., Any]
    rewards: Sequence[Callable[..., Any]]
    config: type[TaskConfig] = field(default=TaskConfig, kw_only=True)
    row: type[Row] | None = field(default=None, kw_only=True)
    version: str = field(default="0", kw_only=True)
    compose: Composer = field(default_factory=weighted_sum, kw_only=True)
    solved: Callable[..., bool] | None = field(default=None, kw_only=True)
    stop: tuple[str, ...] = field(default=(), kw_only=True)
    max_completion_length: int | None = field(default=None, kw_only=True)
    default_model: str | None = field(default=None, kw_only=True)
    timeout_s: float = field(default=5.0, kw_only=True)
    on_timeout: OnTimeout = field(default="abstain", kw_only=True)
    opponent: Opponent | Callable[..., Opponent] | None = field(default=None, kw_only=True)
    order: Order = field(default="shuffled", kw_only=True)
    demos: Callable[..., Iterable[tuple[Prompt, str]]] | None = field(default=None, kw_only=True)
    respond: Callable[..., Prompt | None] | None = field(default=None, kw_only=True)
    max_turns: int | Callable[..., int] = field(default=1, kw_only=True)
    tools: Sequence[Callable[..., Any] | Tool | McpServer] = field(default=(), kw_only=True)
    environment: type[Environment] | None = field(default=None, kw_only=True)
    ends: Ends = field(default="no_call", kw_only=True)
    on_tool_failure: OnFailure = field(default="abstain", kw_only=True)
    max_calls: int = field(default=16, kw_only=True)
    exempt: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    conditions: Callable[..., Mapping[str, str]] | None = field(default=None, kw_only=True)
    metrics: Callable[..., Mapping[str, float]] | None = field(default=None, kw_only=True)
    evaluation: Callable[..., EvaluationDefaults] | None = field(default=None, kw_only=True)
    game: Game | None = field(default=None, kw_only=True)
    remote: Callable[..., Remote] | None = field(default=None, kw_only=True)
    specialize: Callable[..., Task] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name or not all(part.isidentifier() for part in self.name.split(".")):
            raise UserError(f"task name {self.name!r}: use letters, digits and _ (users write plugin.name).")
        if isinstance(self.stop, str):
            raise UserError(
                f"task {self.name!r}: stop={self.stop!r} must be a tuple of strings, e.g. ({self.stop!r},)."
            )
        if callable(self.rewards):
            name = name_of(self.rewards)
            raise UserError(f"task {self.name!r}: rewards={name} must be a tuple, e.g. ({name},).")
        if not all(self.stop):
            raise UserError(f"task {self.name!r}: an empty stop string would end every completion at once.")
        if not 0 < self.timeout_s < math.inf:
            raise UserError(f"task {self.name!r}: timeout_s={self.timeout_s} must be a finite time above 0 seconds.")
        if self.max_completion_length is not None and self.max_completion_length < 1:
            raise UserError(
                f"task {self.name!r}: max_completion_length={self.max_completion_length} must be at least 1."
            )
        for name, kind in (("order", Order), ("on_timeout", OnTimeout), ("ends", Ends), ("on_tool_failure", OnFailure)):
            allowed = typing.get_args(kind)
            if getattr(self, name) not in allowed:
                raise UserError(f"task {self.name!r}: {name}={getattr(self, name)!r} must be {' or '.join(allowed)}.")
        for name in ("max_turns", "max_calls"):
            bound = getattr(self, name)
            if bound is not None and not callable(bound) and not (isinstance(bound, int) and bound >= 1):
                raise UserError(f"task {self.name!r}: {name}={bound!r:.40} must be a whole number from 1.")
        for contribution in _CALLS:
            function = getattr(self, contribution)
            if function is not None and not isinstance(function, Opponent | int):
                check_function(f"task {self.name!r}: {contribution}", function, *_CALLS[contribution])
        self._check_tools()
        check_exemptions(self.name, self.exempt)
        check_composer(self.name, self.compose, self.specs())
        self._check_judges()
        if self.remote is not None and (self.respond or self.game or self.opponent or self.group_specs()):
            raise UserError(
                f"task {self.name!r}: remote= excludes respond=, an opponent and group rewards: the server plays it."
            )
        if self.group_specs() and self._may_have_turns:
            raise UserError(
                f"task {self.name!r}: {self.group_specs()[0].name}() compares answers; with turns there are none."
            )

    def _check_tools(self) -> None:
        asked = {f"reward {each.name}": each.arguments for each in self.specs()}
        for declaration in ("validate", "solved"):
            if function := getattr(self, declaration):
                asked[declaration] = asked_for(function, ("calls", "environment", "turns"))
        for who, arguments in asked.items():
            for name in {"calls", "environment", "turns"}.intersection(arguments):
                if not (self.environment if name == "environment" else self.has_tools):
                    raise UserError(f"task {self.name!r}: {who}() takes {name!r}, and the task has none.")
        if not self.has_tools:
            return
        if not isinstance(self.tools, Sequence):
            raise UserError(f"task {self.name!r}: tools={self.tools!r:.80} must be a tuple of functions.")
        played = [name for name in ("respond", "game", "remote", "opponent") if getattr(self, name) is not None]
        if played:
            raise UserError(
                f"task {self.name!r}: {played[0]}= and tools exclude each other: tools answer the policy. What "
                f"{played[0]} does may be a tool."
            )
        try:
            check_environment(self.environment)
            tools = self.own_tools()
        except UserError as error:
            raise UserError(f"task {self.name!r}: {error}") from None
        if not (tools or self.servers()):
            raise UserError(f"task {self.name!r}: its environment has no tool: mark a method with @tool.")
        if self.ends == "tool" and not any(each.ends for each in tools):
            raise UserError(f"task {self.name!r}: ends='tool', but no tool is marked @tool(ends=True).")

    def _check_judges(self) -> None:
        judges = [each.name for each in self.judges()]
        if judges and self._may_have_turns and not self.has_tools:
            raise UserError(
                f"task {self.name!r}: judge {judges[0]!r} sees one completion; a task with turns cannot have one."
            )
        if judges and self.opponent is not None:
            raise UserError(f"task {self.name!r}: judge {judges[0]!r}: a task with an opponent cannot have a judge.")

    @property
    def _may_have_turns(self) -> bool:
        return self.has_tools or (self.respond is not None and self.max_turns != 1)

    @property
    def has_tools(self) -> bool:
        """Whether the policy may call tools."""
        return bool(self.tools) or self.environment is not None

    def all_tools(self) -> tuple[Tool, ...]:
        """The tools, those of the environment last, in order. MCP servers are asked for theirs once in a process.

        Raises:
            UserError: a server cannot be asked, or two tools have the same name.
        """
        listed = [_tools_of_server(each) if isinstance(each, McpServer) else (each,) for each in self.tools]
        return _tools_of(tuple(chain.from_iterable(listed)), self.environment)

    def own_tools(self) -> tuple[Tool, ...]:
        """The tools without those of MCP servers."""
        return _tools_of(tuple(each for each in self.tools if not isinstance(each, McpServer)), self.environment)

    def servers(self) -> tuple[McpServer, ...]:
        """The MCP servers among its tools."""
        return tuple(each for each in self.tools if isinstance(each, McpServer))

    @property
    def validates_all_turns(self) -> bool:
        """Whether `validate` takes `texts`, the completions of all turns."""
        return "texts" in asked_for(self.validate, ("texts",))

    def specs(self) -> tuple[RewardSpec, ...]:
        """The rewards of a completion by itself with their marks, in order."""
        return reward_specs(self.name, [function for function in self.rewards if not is_group_reward(function)])

    def group_specs(self) -> tuple[RewardSpec, ...]:
        """The rewards relative to the group with their marks, in order."""
        return group_reward_specs(self.name, self.rewards)

    def judges(self) -> tuple[JudgedReward, ...]:
        """The rewards that a judge decides, in order, those relative to the group too."""
        return tuple(function for function in self.rewards if isinstance(function, JudgedReward))

    def row_type(self) -> type[Row]:
        """The class of the rows: `row`, else what `load`'s return annotation iterates over.

        Raises:
            UserError: neither says.
        """
        if self.row is not None:
            return self.row
        try:
            annotation = typing.get_type_hints(self.load).get("return")
        except (NameError, TypeError):  # an annotation naming a local class, or a load that is not a function
            annotation = None
        arguments = typing.get_args(annotation)
        candidate = arguments[0] if arguments else None
        if isinstance(candidate, type) and issubclass(candidate, Row):
            return candidate
        raise UserError(
            f"task {self.name!r}: the class of its rows is unknown. Annotate load() -> Iterable[YourRow], "
            "or give Task(…, row=YourRow)."
        )
