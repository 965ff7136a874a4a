"""Tools: functions of a task's author that the policy may call."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints, overload
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from grpo_sdk.errors import MAX_NAME_CHARS, UserError, near_match
from grpo_sdk.task.calling import name_of

if TYPE_CHECKING:
    from grpo_sdk.task.tools.mcp_server import McpServer

ToolFunction = TypeVar("ToolFunction", bound=Callable[..., Any])

MAX_DEPTH = 200
"""Levels of lists and objects in the arguments of a call; pydantic's JSON parser takes no more."""

MAX_ARGUMENT_BYTES = 1 << 20
"""Arguments of a call, as JSON."""

MAX_PROBLEMS, MAX_PROBLEM_CHARS = 8, 1000
"""Of wrong arguments that the policy is told."""

MAX_LISTED = 10_000
"""Problems beyond which they are only counted: pydantic makes an object of each."""

MAX_RESULT_CHARS = 10_000
"""Of a result that the policy reads."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI's API takes; other servers take more."""

_MARK, _TYPES = "_grpo_tool", "_grpo_tool_types"
"""Attributes of a function: its mark, and the types of its parameters."""

_NONE = inspect.Parameter.empty


class ToolError(Exception):
    """A call that failed by what the policy wrote: the text is the result, which it reads.

    A tool raises it; any other exception of a tool is a fault of the task.
    """


class ToolFault(Exception):
    """A tool returned what no policy reads, or something else than before: the message goes on after its name."""


@overload
def tool(function: ToolFunction, /) -> ToolFunction: ...
@overload
def tool(
    *, ends: bool = ..., name: str | None = ..., timeout_s: float | None = ...
) -> Callable[[ToolFunction], ToolFunction]: ...
def tool(
    function: Any = None, /, *, ends: bool = False, name: str | None = None, timeout_s: float | None = None
) -> Any:
    """Mark a function, or a method of an `Environment`, as a tool; it stays the function that it is.

    Each parameter needs an annotation that pydantic has a JSON schema for. The text of the docstring before its
    sections describes the tool to the policy, `Args:` (also of NumPy's and reStructuredText's form) its parameters,
    where `Annotated[…, Field(description=…)]` doesn't. A tool without a docstring has an empty description.

    It may be `async`. It returns text, which the policy reads as it is, or what JSON has, and raises `ToolError` for
    what the policy did wrong.

    Args:
        function: The function, where the decorator stands without parentheses.
        ends: Whether the episode ends with its call.
        name: What the policy calls it; by default the function's name.
        timeout_s: Seconds a call may take; by default the task's limit.

    Raises:
        UserError: an argument that is not allowed, no function, or one that is marked as another tool already.
    """
    if function is not None and not callable(function):
        raise UserError(f"@tool({function!r:.80}): write @tool, or @tool(name=…, ends=…, timeout_s=…).")
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
        raise UserError(f"tool(timeout_s={timeout_s!r}) must be a finite time above 0 seconds.")

    def mark(function: ToolFunction) -> ToolFunction:
        marked = (bool(ends), _checked_name(function, name), timeout_s)
        if getattr(function, _MARK, marked) != marked:
            raise UserError(
                f"{name_of(function)}() is marked with another @tool already; mark a function of its own that calls it."
            )
        try:
            setattr(function, _MARK, marked)
        except AttributeError:
            raise UserError(
                f"{name_of(function)}() takes no mark, as a bound method or a builtin; wrap it in a def."
            ) from None
        return function

    return mark if function is None else mark(function)


def _checked_name(function: Any, name: str | None) -> str:
    """The name of a function's tool."""
    if not hasattr(function, "__name__") or isinstance(function, type | staticmethod | classmethod):
        raise UserError(f"tool {function!r:.80} must be a function or a plain method; wrap it in a def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(f"tool {name_of(function)}() yields; let it return its result, e.g. a list.")
    name = name_of(function) if name is None else name
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise UserError(f"tool name {name!r:.80}: use 1 to 64 of a-z, A-Z, 0-9, _ and -, e.g. @tool(name='look_up').")
    return name


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function that the policy may call; `tools_of` makes them.

    Attributes:
        name: What the policy calls it.
        description: What it does.
        parameters: JSON Schema of its arguments, an object.
        function: The function; of an environment's tool the method, whose first argument is the environment.
        ends: Whether the episode ends with its call.
        is_async: Whether the function is `async`.
        timeout_s: Seconds a call may take; None is the task's limit.
        is_method: Whether it is a method of the environment.
        server: The MCP server that has it; the function is then None.
        remote_name: Its name there.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any] | None
    ends: bool
    is_async: bool
    timeout_s: float | None
    is_method: bool
    _model: type[BaseModel] | None = field(repr=False)
    server: McpServer | None = None
    remote_name: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as chat templates and servers take it."""
        described = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": described}

    def validated(self, arguments: Mapping[str, Any], are_texts: bool = False) -> dict[str, Any]:
        """Check the arguments of a call, and convert them by the schema.

        Values are converted as pydantic's lax mode does: "3" is an int, 3.5 is none. A text of an XML format stays text
        where the schema takes one. Else it is read as JSON or as Python's spelling of it (`True`, `None`, `'a'`); what
        is neither stays text, which lax mode may take. Where the schema takes null, `null` and `None` are null even
        beside text, since models have no other way to write it there.

        Args:
            arguments: What the policy wrote, by name.
            are_texts: Whether the values are the texts of an XML format.

        Returns:
            What to call the function with, by name, defaults included.

        Raises:
            ToolError: everything that is wrong, for the policy.
        """
        properties, written = self.parameters["properties"], _as_json(self.name, arguments)
        unknown = [name for name in arguments if name not in properties]
        if any(self.parameters.get(keyword) for keyword in _TAKES_OTHERS):
            unknown = []
        read = dict(arguments)
        if (are_texts or self._model is None) and not unknown:
            for name, text in arguments.items():
                alternatives = [*_alternatives(properties.get(name, _TEXT), self.parameters)]
                if isinstance(text, str) and (are_texts or not any(map(_takes_text, alternatives))):
                    read[name] = _from_text(text, alternatives)
            written = _as_json(self.name, read)
        problems = [
            f"unknown argument {name[:MAX_NAME_CHARS]!r} ({self._near(name)})" for name in unknown[:MAX_PROBLEMS]
        ]
        count, made = len(unknown), None
        if self._model is None:  # whoever has the tool looks at the values
            missing = [name for name in self.parameters.get("required", ()) if name not in arguments]
            count += len(missing)
            problems = [*problems, *(f"missing argument {name!r}" for name in missing)][:MAX_PROBLEMS]
        else:
            try:
                made = self._model.model_validate_json(written)
            except ValidationError as error:
                count += error.error_count()
                wrong = error.errors(include_url=False) if count <= MAX_LISTED else []  # which makes all of them
                problems = [*problems, *map(_problem, wrong[:MAX_PROBLEMS])][:MAX_PROBLEMS]
        if count:
            more = count - len(problems)
            text = "; ".join(problems)[:MAX_PROBLEM_CHARS]
            text += f"{'; and ' if text else ''}{more:,} {'more' if text else 'wrong values'}" if more else ""
            raise ToolError(f"{self.name} was not called: {text}")
        return read if made is None else {name: getattr(made, _PREFIX + name) for name in properties}

    def _near(self, name: str) -> str:
        names = self.parameters["properties"]
        near = near_match(name[:MAX_NAME_CHARS], names).strip().replace("Did", "did", 1)
        return near or f"it takes {', '.join(names)[:MAX_NAME_CHARS] or 'none'}"


_TAKES_OTHERS = ("additionalProperties", "patternProperties", "$ref", "anyOf", "oneOf", "allOf")
"""Keywords of another's schema by which it may take arguments that its `properties` do not name."""

_TEXT = {"type": "string"}
"""Schema of an argument that another's schema takes without naming it."""

_PREFIX = "argument_"
"""Of a parameter's field, since a model's own names, and those with an underscore in front, cannot be fields."""


class _Schema(GenerateJsonSchema):
    """Keywords in the order in which people write them; a default that JSON doesn't have is left out."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 # as it is in the base

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value


def schema_tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    function: Callable[..., Any] | None,
    *,
    ends: bool = False,
    is_method: bool = False,
    server: McpServer | None = None,
    remote_name: str = "",
) -> Tool:
    """A tool whose parameters somebody else has described, e.g. a server; a task takes it among its `tools`.

    Texts are converted where the schema takes no text ("3" is an int); all else the function must look at.

    Args:
        name: What the policy calls it.
        description: What it does.
        parameters: JSON Schema of its arguments. One that says nothing of other arguments takes none.
        function: Called with the arguments by name, after the environment where it is a method; None for a server's.
        ends: Whether the episode ends with its call.
        is_method: Whether the function's first argument is the environment.
        server: The MCP server that has it.
        remote_name: Its name there.

    Raises:
        UserError: a name that no API takes, or a schema that is none of an object.
    """
    if _NAME.fullmatch(name) is None:
        raise UserError(f"tool name {name!r:.80}: use 1 to 64 of a-z, A-Z, 0-9, _ and -.")
    try:
        schema = {"type": "object", **json.loads(json.dumps(parameters, allow_nan=False))}
        schema["properties"] = properties = dict(schema.get("properties") or {})
        for each in properties.values():
            deque(_alternatives(each, schema), maxlen=0)
        if schema["type"] != "object" or not all(isinstance(each, str) for each in schema.get("required", ())):
            raise TypeError("its arguments are no object")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"tool {name!r}: its parameters are no JSON Schema of an object: {error!s:.200}") from None
    is_async = server is not None or inspect.iscoroutinefunction(function)
    return Tool(name, description, schema, function, ends, is_async, None, is_method, None, server, remote_name)


def tools_of(functions: Sequence[Any], environment: type | None = None) -> tuple[Tool, ...]:
    """The tools of a task: its functions, then the marked methods of its environment, both in order of definition.

    A subclass inherits tools. A method that takes the place of one is marked, too, or is None, which removes it.

    Args:
        functions: Functions, marked or not; tools of `schema_tool`.
        environment: Class of the environment.

    Raises:
        UserError: a parameter without a schema, a name that no API takes, or two tools of one name.
    """
    if callable(functions):
        raise UserError(f"tools={name_of(functions)} must be a tuple, e.g. ({name_of(functions)},).")
    tools: dict[str, Tool] = {}
    members = [(function, False) for function in functions] + [(method, True) for method in _methods(environment)]
    for function, is_method in members:
        if not (callable(function) or isinstance(function, Tool)):
            raise UserError(f"{function!r:.80} among the tools must be a function.")
        made = function if isinstance(function, Tool) else _made(function, is_method)
        if made.name in tools:
            raise UserError(
                f"two tools have the name {made.name!r}: {_where(tools[made.name])} and {_where(made)}; give one "
                "another name by @tool(name=…), or leave it out by mcp(…, only=…)."
            )
        tools[made.name] = made
    return tuple(tools.values())


def listed_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools as the Model Context Protocol lists them; one without a description is described by its name."""
    return [
        {"name": tool.name, "description": tool.description or tool.name, "input_schema": dict(tool.parameters)}
        for tool in tools
    ]


def _where(defined: Any) -> str:
    """Where a function, a class or a tool is defined, for messages."""
    if isinstance(defined, Tool):
        return defined.server.label if defined.server else _where(defined.function)
    return f"{defined.__module__}.{defined.__qualname__}"


def _methods(environment: type | None) -> Iterator[Any]:
    bases = [] if environment is None else reversed(environment.__mro__)
    for name in dict.fromkeys(name for base in bases for name, value in vars(base).items() if is_marked(value)):
        method = inspect.getattr_static(environment, name)
        if method is not None and not is_marked(method):
            raise UserError(
                f"{_where(environment)}.{name} takes the place of a tool without being one: mark it with @tool, or "
                f"write {name} = None to have no such tool."
            )
        if method is not None:
            yield method


def is_marked(value: Any) -> bool:
    """Whether something is marked as a tool."""
    return hasattr(value, _MARK) or hasattr(getattr(value, "__func__", None), _MARK)  # of a static or class method


def _made(function: Any, is_method: bool) -> Tool:
    import docstring_parser

    ends, name, timeout_s = getattr(function, _MARK, (False, None, None))
    name = _checked_name(function, name)
    taken = {
        parameter.name: (_annotation(name, function, parameter), parameter.default)
        for parameter in _parameters(name, function, is_method)
    }
    try:
        model, schema = _described(name, taken)
    except Exception as error:  # an annotation's own code may raise anything
        raise _without_schema(name, taken, error) from None
    documented = docstring_parser.parse(inspect.getdoc(function) or "")
    for part in documented.params:
        for parameter in part.arg_name.split(",") if part.args[0] != "attribute" else ():  # NumPy: `a, b : int`
            parameter = parameter.strip(" `*")
            if parameter not in taken:
                raise UserError(
                    f"tool {name!r}: its docstring describes {parameter!r:.80}, which is no parameter of it."
                    f"{near_match(parameter, taken)} Lines that continue a description are indented."
                )
            if part.description:
                text = re.sub(r"\s*\n\s*", " ", part.description.strip())
                schema["properties"][parameter].setdefault("description", text)
    description, is_async = (documented.description or "").strip(), inspect.iscoroutinefunction(function)
    return Tool(name, description, schema, function, ends, is_async, timeout_s, is_method, model)


def _parameters(name: str, function: Any, is_method: bool) -> Iterable[inspect.Parameter]:
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except ValueError:  # some builtins have none
        raise UserError(f"tool {name!r} has no signature that can be read; wrap it in a def.") from None
    if is_method and (not parameters or (parameters[0].name != "self" and parameters[0].annotation is not _NONE)):
        raise UserError(f"tool {name!r} is a method of an environment: its first parameter must be self.")
    for parameter in parameters[is_method:]:
        who = f"tool {name!r}: parameter {str(parameter.replace(annotation=_NONE, default=_NONE))!r}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UserError(f"{who}: a call names its arguments; take a list or a dict, or name each.")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UserError(f"{who} is positional-only, and a call names its arguments; remove the / behind it.")
        if parameter.annotation is _NONE:
            raise UserError(
                f"{who} has no annotation, from which its schema is made; write e.g. {parameter.name}: str."
            )
        yield parameter


def _annotation(name: str, function: Any, parameter: inspect.Parameter) -> Any:
    """The type that an annotation names.

    It is kept on the function: a function of a script reaches the workers by value, without names that only
    annotations use.
    """
    kept = function.__dict__.setdefault(_TYPES, {})
    if parameter.name not in kept:
        holder = type("", (), {"__annotations__": {"it": parameter.annotation}})
        names = getattr(inspect.unwrap(function), "__globals__", {})
        try:
            kept[parameter.name] = get_type_hints(holder, names, include_extras=True)["it"]
        except Exception as error:  # evaluating an annotation may raise anything
            raise UserError(
                f"tool {name!r}: parameter {parameter.name!r}: its annotation {parameter.annotation!r:.80} cannot be "
                f"read: {error}. Define what it names at the top of the module."
            ) from None
    return kept[parameter.name]


def _described(name: str, taken: Mapping[str, tuple[Any, Any]]) -> tuple[type[BaseModel], dict[str, Any]]:
    """The model of a tool's arguments, and its schema without titles."""
    config = ConfigDict(alias_generator=lambda field: field.removeprefix(_PREFIX), allow_inf_nan=False)
    made = {
        _PREFIX + parameter: (annotation, ... if default is _NONE else default)
        for parameter, (annotation, default) in taken.items()
    }
    model: type[BaseModel] = create_model(name, __config__=config, **made)  # type: ignore[call-overload] # by name
    for key, about in model.model_fields.items():
        if about.validation_alias != key.removeprefix(_PREFIX):
            raise TypeError(f"its alias {about.validation_alias!r} isn't its name; rename the parameter")
    schema = model.model_json_schema(schema_generator=_Schema)
    return model, _untitled(schema)


def _without_schema(name: str, taken: Mapping[str, tuple[Any, Any]], error: Exception) -> UserError:
    for parameter, made in taken.items():
        try:
            _described(name, {parameter: made})
        except Exception as reason:  # as in _made
            said = re.split(r"\.\s|\n", str(reason).strip())[0][:300]  # the rest is about models
            return UserError(
                f"tool {name!r}: parameter {parameter!r} has no JSON schema: {said}. Take text, numbers, lists, dicts, "
                "Literal, an Enum, a dataclass, a TypedDict or a pydantic model."
            )
    return UserError(f"tool {name!r}: its parameters have no JSON schema together: {error}")


def _untitled(schema: Any) -> Any:
    """A schema without the titles that repeat names, types first, as transformers writes it."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {"type": schema["type"]} if "type" in schema else {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            kept[key] = {name: _untitled(each) for name, each in value.items()}
        elif key != "title":
            kept[key] = value if key in ("default", "const", "enum", "examples") else _untitled(value)
    return kept


def _as_json(name: str, arguments: Mapping[str, Any]) -> bytes:
    """Arguments as JSON, within the bounds."""
    if _is_deeper(arguments, MAX_DEPTH):
        raise ToolError(f"{name} was not called: its arguments nest deeper than {MAX_DEPTH} levels")
    try:
        written = json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:  # ValueError: of NaN and of half a surrogate pair
        raise ToolError(f"{name} was not called: its arguments are no JSON: {str(error)[:200]}") from None
    if len(written) > MAX_ARGUMENT_BYTES:
        raise ToolError(
            f"{name} was not called: its arguments have {len(written):,} bytes, of at most {MAX_ARGUMENT_BYTES:,}"
        )
    return written


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    return levels < 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _problem(problem: Mapping[str, Any]) -> str:
    """A problem of pydantic's in a few words."""
    where = ".".join(str(part) for part in problem["loc"])[:MAX_NAME_CHARS]
    if problem["type"] == "missing":
        return f"missing argument {where!r}"
    given = problem["input"]
    given = f"{given[:40]!r}…" if isinstance(given, str) and len(given) > 40 else f"{given!r:.42}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')[:300]} (given {given})"


def pointed(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    """The schema that a `$ref` means, `#/…` of its root; {}, which takes anything, where there is none."""
    found: Any = root
    for part in unquote(reference).removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        parts = {str(place): each for place, each in enumerate(found)} if isinstance(found, list) else found
        found = parts.get(name, {}) if isinstance(parts, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _alternatives(schema: Any, root: Mapping[str, Any], seen: set[str] | None = None) -> Iterator[Mapping[str, Any]]:
    """What a value may be: the parts of a schema without references, each of which is followed once, and unions."""
    seen = set() if seen is None else seen
    if not isinstance(schema, Mapping):  # true takes anything
        schema = {}
    if "$ref" in schema and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        yield from _alternatives(pointed(root, schema["$ref"]), root, seen)
    unions = [each for keyword in ("anyOf", "oneOf", "allOf") for each in schema.get(keyword, ())]
    for each in unions:
        yield from _alternatives(each, root, seen)
    if (not unions and "$ref" not in schema) or {"type", "enum", "const"} & schema.keys():
        yield schema


def _names(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether `type` of a schema names a kind."""
    kinds = schema.get("type", ())
    return kind == kinds or (isinstance(kinds, list) and kind in kinds)


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether a part without references takes some text: one that says nothing of kinds takes every one."""
    if constants := schema.get("enum") or [schema.get("const")] * ("const" in schema):
        return any(isinstance(each, str) for each in constants)
    return _names(schema, "string") or not {"type", "properties", "items"} & schema.keys()


def _from_text(text: str, alternatives: list[Mapping[str, Any]]) -> Any:
    """The value of a text, by what it may be."""
    bare = text.strip()
    if bare in ("null", "None") and any(_names(each, "null") for each in alternatives):
        return None
    for each in alternatives:
        constants = each.get("enum", [each["const"]] if "const" in each else None)
        if constants is None and _names(each, "string"):
            return text
        for written in (text, bare):
            if written in (constants or ()):
                return written
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser, about escapes
            value = read(bare)
            json.dumps(value, allow_nan=False)  # raises for NaN, and for what only Python spells, as a set
            return value
    return text


def result_text(value: Any, max_chars: int = MAX_RESULT_CHARS) -> str:
    """What a tool returned, as the policy reads it.

    Text stays as it is. All else is JSON: numbers, lists, dicts, dataclasses, pydantic models, and null of a tool that
    returns nothing. Longer text is cut, with a mark that says so.

    Args:
        value: What the tool returned.
        max_chars: Bound on its characters.

    Raises:
        TypeError: it cannot be told to the policy: the type, and what to return instead.
    """
    if isinstance(value, str):
        text = str.__str__(value)
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
        except (ValueError, RecursionError) as error:
            raise TypeError(f"a tool returned {type(value).__name__} that JSON doesn't have: {error}") from None
    if len(text) > max_chars:
        text = f"{text[:max_chars]}… [cut: {max_chars:,} of {len(text):,} characters]"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise TypeError(f"a tool returned {half!a}, half of a surrogate pair, which is no text") from None
    return text


def _plain(value: Any) -> Any:
    """What JSON has in place of a value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if not isinstance(value, bytes | bytearray | memoryview | set | frozenset | Iterator):  # a set has no order
        with suppress(PydanticSerializationError):
            return to_jsonable_python(value)
    raise TypeError(
        f"a tool returned {type(value).__module__}.{type(value).__qualname__}; return text, numbers, lists, dicts, a "
        "dataclass or a pydantic model: the policy reads text only"
    )
