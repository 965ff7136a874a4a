"""The judge: set-up and tests run here, in a clean process; what they take from the program are proxies.

A call of a proxy sends the values of its arguments to the program's process, and its result arrives as plain data of
the built-in types before anything of the test touches it. So every operator, method and built-in function of a test is
this process's own, and what an answer must be never leaves it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from grpo_tasks_code.sandbox.inside.conversation import MAX_TEXT, Conversation
from grpo_tasks_code.sandbox.inside.looks import Looks
from grpo_tasks_code.sandbox.inside.mutations import Mutations
from grpo_tasks_code.sandbox.inside.passing import compiled
from grpo_tasks_code.sandbox.inside.proxies import Proxy, is_raised
from grpo_tasks_code.sandbox.inside.wire import Channel

VALUE, IN_PLACE, BEGIN, END = "__value__", "__in_place__", "__begin__", "__end__"
"""What prepared tests call: see `rewriting`."""
_MODULE_NAME = "tests"


class Session:
    """One test's conversation with the candidate, by way of the process that started both.

    Args:
        channel: To that process.
        classes: Names of the candidate that the tests use as classes.
        objects: Of those, what makes objects that are no data, even if their class inherits from `list`.

    Attributes:
        namespace: What the test's names mean.
        conversation: The questions to the candidate, and its answers.
    """

    def __init__(self, channel: Channel, classes: Sequence[str], objects: Sequence[str]) -> None:
        self._class_names, self._object_names = frozenset(classes), frozenset(objects)
        self._mutations = Mutations()
        self._looks = Looks()
        self._made: dict[int, Proxy] = {}
        self._unused: dict[int, Proxy] = {}
        module = sys.modules[_MODULE_NAME] = types.ModuleType(_MODULE_NAME)  # where dataclasses look for theirs
        self.namespace = module.__dict__
        self.namespace |= {
            VALUE: self.value,
            IN_PLACE: self.in_place,
            BEGIN: self._mutations.begin,
            END: self._mutations.end,
        }
        self.conversation = Conversation(channel, self.namespace, self, self._use)

    def share(self, names: Sequence[str]) -> None:
        """Have instances of these classes travel by value too, as far as they have been defined."""
        values = {name: self.namespace.get(name) for name in names}
        self.conversation.classes |= {name: kind for name, kind in values.items() if isinstance(kind, type)}

    # What prepared tests call

    def value(self, name: str) -> Any:
        """A global name of the candidate: its value, or what stands for it."""
        value = self.conversation.ask(["value", name])[0]
        return Proxy(self, ["name", name], value.__kind__) if isinstance(value, Proxy) else value

    def in_place(self, function: Any) -> Any:
        """A function whose result is not used: what a call of it does to its arguments, it does for the test too."""
        if not isinstance(function, Proxy):
            return self._mutations.before_own(function)
        return lambda *arguments, **keywords: self.call(function, arguments, keywords, is_in_place=True)

    # What proxies do

    def call(
        self, function: Proxy, arguments: Sequence[Any], keywords: dict[str, Any], *, is_in_place: bool = False
    ) -> Any:
        """What a function of the candidate returns."""
        self._use(function)
        own = [*arguments, *keywords.values()]
        kind, name = function.__target__[:2]
        is_object = kind == "name" and name in self._object_names
        question = ["call", function.__target__, self.conversation.pack(map(self._own, own)), list(keywords), is_object]
        result, *after = self.conversation.ask(question)
        for argument, content in zip(own, after, strict=False):
            if not isinstance(argument, Proxy):
                self._mutations.note(argument, content)
        if is_in_place:
            self._mutations.apply(own)
        if isinstance(result, Proxy) and kind != "object":
            if name in self._class_names:
                # Two objects of the test's that are one there are one here.
                return self._made.setdefault(result.__target__[1], result.as_made())
            if not is_in_place:
                self._unused[id(result)] = result
            self._looks.watch(result.__target__[1])
        return result

    def get(self, subject: Proxy, name: str) -> Any:
        """An attribute of the candidate's."""
        self._use(subject, name)
        return self.conversation.ask(["get", subject.__target__, name])[0]

    def look(self, subject: Proxy, name: str, key: Any = None) -> Any:
        """What an object says that it holds: its length, its items, one of them."""

        def ask() -> Any:
            method = self.conversation.ask(["get", subject.__target__, name])[0]
            return method() if key is None else method(key)

        self._unused.pop(id(subject), None)
        is_answer = subject.__target__[0] == "object" and not subject.__is_made__
        return self._looks.look(subject.__target__[1], name, key, ask) if is_answer else ask()

    def set(self, subject: Proxy, name: str, value: Any) -> None:
        """Set an attribute of the candidate's."""
        self._use(subject)
        self.conversation.ask(["set", subject.__target__, name, self.conversation.pack([value])])

    def operate(self, operator: str, operands: Sequence[Any]) -> Any:
        """What an operator gives; only of objects that the test made are operators what it tests."""
        proxies = [operand for operand in operands if isinstance(operand, Proxy)]
        is_order = operator.removeprefix("operator.") in ("lt", "le", "gt", "ge")
        are_made = [isinstance(operand, Proxy) and operand.__is_made__ for operand in operands]
        if not (all(are_made) if is_order else any(are_made)):
            answer = next((operand for operand in proxies if not operand.__is_made__), proxies[0])
            self.refuse(answer, operator.partition(".")[2].rstrip("_"))
        result = self.call(Proxy(self, ["library", *operator.split(".")], "function"), operands, {})
        if not isinstance(result, Proxy):
            return result
        self._unused.pop(id(result), None)
        if is_order or operator in ("operator.truth", "operator.index"):
            self.refuse(result)
        return self._made.setdefault(result.__target__[1], result.as_made())

    def run(self, awaitable: Proxy) -> tuple[Any, bool]:
        """What awaiting it gives, or that its iteration is over."""
        self._use(awaitable)
        match self.conversation.ask(["run", awaitable.__target__]):
            case [result, bool(is_over)]:
                return result, is_over
        self.conversation.stop("failed", "it answers with no value")

    def check_use(self) -> None:
        """At a test's end: what a function returned without being data must have been asked for some."""
        for answer in self._unused.values():
            self.refuse(answer)
        if self._looks.lies:
            self.conversation.stop("failed", "the answer is an object, not plain data, and the test needs data")

    def refuse(self, answer: Proxy, what: str = "") -> NoReturn:
        """Decide the test: the candidate would be its own judge."""
        use = f"; the test needs data for {what}" if what else ""
        self.conversation.stop("failed", f"the answer is a {answer.__kind__}, not plain data{use}")

    def _use(self, subject: Proxy, name: str = "") -> None:
        self._unused.pop(id(subject), None)
        kind, number = subject.__target__[:2]
        if kind == "object":
            self._looks.use(number, name)

    def _own(self, argument: Any) -> Any:
        """An argument; an iterator of the candidate's that was not begun here is handed back as it is."""
        target = self.conversation.unstarted(argument)
        return self._mutations.current(argument) if target is None else Proxy(self, target, "iterator")


def judge(channel: Channel) -> int:
    """Run the tests that arrive and send a verdict for each.

    ["begin", set-up, names, classes, objects, exceptions, shared classes, [[index, source, its own classes, their
    names], …]]; per test then ["test", index], questions ["ask", question], and ["verdict", status, reason]; each is
    answered, so that its clock is the asker's. The set-up runs anew for each test: none finds what another, or the
    program, made of its values.
    """
    begin = channel.receive()
    if begin is None:
        return 0
    _, setup, names, classes, objects, exceptions, shared, tests = begin
    for index, source, before, own in tests:
        channel.send(["test", index])
        channel.receive()
        session = Session(channel, classes, objects)
        session.namespace |= {name: Proxy(session, ["name", name], name) for name in names}
        session.namespace |= {name: type(name, (Exception,), {}) for name in exceptions}
        channel.send(["verdict", *_verdict([(setup, shared), (before, own)], source, session)])
        channel.receive()
    return 0


def _verdict(before: Sequence[tuple[str, Sequence[str]]], source: str, session: Session) -> tuple[str, str]:
    """Of a test, after what runs before it, each with the names of the classes that it shares."""
    status, reason, is_set_up = "passed", "", False
    try:
        for statements, shared in before:
            exec(compiled(statements), session.namespace)
            session.share(shared)
        is_set_up = True
        exec(compiled(source), session.namespace)
        session.check_use()
    except BaseException as error:  # whatever keeps a test from its end
        is_ours = not session.conversation.has_answer and not is_set_up
        is_ours |= isinstance(error, ImportError) and not is_raised(error)
        status = "sandbox_error" if is_ours else "failed"
        reason = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")[:MAX_TEXT] or "it does not hold"
    if session.conversation.undecidable is not None:
        status, reason = session.conversation.undecidable.args
    return status, reason
