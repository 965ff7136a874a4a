"""The calling process's end of a channel, against a program's end that sends whatever it likes."""

from collections.abc import Iterator

import pytest

from grpo_tasks_code.sandbox.host.channel import MessageChannel
from grpo_tasks_code.sandbox.inside import wire


@pytest.fixture
def channel() -> Iterator[MessageChannel]:
    channel = MessageChannel()
    yield channel
    channel.close()
    channel.program_end.close()


def test_part_of_a_message_is_no_message(channel: MessageChannel) -> None:
    data = wire.frame("whole")
    channel.program_end.sendall(data[:6])
    channel.read()
    assert (channel.has_message, channel.take()) == (False, None)
    channel.program_end.sendall(data[6:])
    channel.read()
    assert channel.take() == "whole"


DEEP = [b"[" * depth + b"]" * depth for depth in (wire.MAX_NESTING + 1, 1000)]  # and too deep for the parser


@pytest.mark.parametrize("data", [b"{", b"null", *DEEP, b"\xff", None])
def test_what_is_no_message_closes_the_channel(channel: MessageChannel, data: bytes | None) -> None:
    length = wire.MAX_FRAME_BYTES + 1 if data is None else len(data)  # one that is too long is refused unread
    channel.program_end.sendall(wire.LENGTH.pack(length) + (data or b""))
    channel.read()
    assert channel.has_message
    assert channel.take() is None
    assert not channel.is_open


@pytest.mark.parametrize("reads", [True, False])
def test_the_end_of_the_program_closes_the_channel(channel: MessageChannel, reads: bool) -> None:
    channel.program_end.close()
    if reads:
        channel.read()
        assert not channel.is_open
    channel.send("to nobody")  # and says nothing
    assert not channel.is_open
