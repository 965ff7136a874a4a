from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from grpo_core.errors import UserError
from grpo_core.task.calling import asked_for, binding_of, call_by_name, prints_to_stderr

GIVEN = {"text": "T", "row": "R", "config": "C"}


def test_arguments_come_by_name_in_any_order() -> None:
    def validate(config, text):
        return config + text

    assert call_by_name(validate, GIVEN, positional=2) == "CT"


def test_a_function_may_ask_for_nothing() -> None:
    assert call_by_name(lambda: 7, {"config": None}, positional=1) == 7


def test_customary_arguments_may_have_names_of_the_authors_own() -> None:
    assert call_by_name(lambda completion, problem: completion + problem, GIVEN, positional=2) == "TR"


def test_a_name_that_is_known_keeps_its_meaning_where_others_are_renamed() -> None:
    # `row` stands first here: it must get the row, and `completion` the one customary value that is left, the text.
    assert call_by_name(lambda row, completion: row + completion, GIVEN, positional=2) == "RT"
    assert call_by_name(lambda completion, row, config: completion + row + config, GIVEN, positional=2) == "TRC"


def test_one_renamed_argument_where_two_are_customary_is_ambiguous() -> None:
    with pytest.raises(UserError, match=r"takes 'answer'; it may take text, row, config"):
        call_by_name(lambda answer: answer, GIVEN, positional=2)
    with pytest.raises(UserError, match=r"takes 'completion'; .*Names of your own are taken for all of text, row\.$"):
        call_by_name(lambda completion: completion, GIVEN, positional=2)


def test_an_unknown_argument_names_the_near_one() -> None:
    def load(confg, more):
        return confg, more

    with pytest.raises(UserError, match=r"load\(\) takes 'confg'; it may take config\. Did you mean 'config'\?"):
        call_by_name(load, {"config": None}, positional=1)


def test_settings_with_defaults_keep_them() -> None:
    def penalty(text, *, free_chars=50):
        return text, free_chars

    assert call_by_name(penalty, GIVEN) == ("T", 50)
    assert call_by_name(partial(penalty, free_chars=9), GIVEN) == ("T", 9)


def test_a_default_gives_way_to_what_is_available() -> None:
    assert call_by_name(lambda text="unset": text, GIVEN) == "T"


def test_gathering_parameters_get_nothing() -> None:
    assert call_by_name(lambda row, *args, **kwargs: (row, args, kwargs), GIVEN, positional=1) == ("R", (), {})


def test_objects_that_can_be_called_work_and_go_by_their_class() -> None:
    class Template:
        def __call__(self, rwo, other):
            return rwo, other

    with pytest.raises(UserError, match=r"Template\(\) takes 'rwo'"):
        binding_of(Template(), ("row", "config"), 1)


def test_objects_without_a_hash_work() -> None:
    @dataclass
    class Near:
        tolerance: float

        def __call__(self, text, tolerance=None):
            return text * int(self.tolerance)

    assert call_by_name(Near(2.0), GIVEN) == "TT"
    assert asked_for(Near(2.0), ("text",)) == ("text",)


def test_a_builtin_without_a_signature_is_refused_in_words() -> None:
    with pytest.raises(UserError, match=r"type\(\) has no signature that can be read; wrap it in a def"):
        asked_for(type, ("row",))


def test_prints_of_threads_that_overlap_are_diverted_until_the_last_ends(capfd: pytest.CaptureFixture[str]) -> None:
    stdout = sys.stdout
    is_inside, may_leave = threading.Event(), threading.Event()

    def load() -> None:
        with prints_to_stderr():
            is_inside.set()
            may_leave.wait(10.0)
            os.write(1, b"second module\n")

    with prints_to_stderr():
        other = threading.Thread(target=load)
        other.start()
        assert is_inside.wait(10.0)
        print("first module")
    os.write(1, b"still diverted\n")
    may_leave.set()
    other.join()
    assert sys.stdout is stdout
    print("a result", flush=True)
    os.write(1, b"another\n")
    captured = capfd.readouterr()
    assert captured.out == "a result\nanother\n"
    assert captured.err == "first module\nstill diverted\nsecond module\n"
