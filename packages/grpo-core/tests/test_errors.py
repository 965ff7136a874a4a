from __future__ import annotations

import inspect
import pickle

import pytest

from grpo_core import errors
from grpo_core.errors import ExitCode, GrpoError, UnknownNameError, UserError, near_match, unknown_name

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, GrpoError)]


def test_a_misspelt_name_gets_the_near_one_and_everything_that_exists() -> None:
    error = unknown_name("task", "chess.polcy", ["math.gsm8k", "chess.policy"])

    assert str(error) == "no task 'chess.polcy'. Did you mean 'chess.policy'? Available: chess.policy, math.gsm8k"


def test_a_name_in_other_letters_is_near() -> None:
    assert near_match("H100", ["v100", "h100"]) == " Did you mean 'h100'?"
    assert near_match("grpo_device", ["GRPO_DEVICE"]) == " Did you mean 'GRPO_DEVICE'?"


def test_a_name_like_no_other_gets_no_guess() -> None:
    assert near_match("zzz", ["policy", "gsm8k"]) == ""
    assert str(unknown_name("loss", "zzz", [])) == "no loss 'zzz'. Available: (none)"


@pytest.mark.parametrize(
    ("error", "stdlib"),
    [
        (UserError, ValueError),
        (UnknownNameError, LookupError),
        (errors.PluginError, ValueError),
        (errors.DataError, ValueError),
        (errors.InfrastructureError, RuntimeError),
        (errors.AbstentionLimitError, RuntimeError),
        (errors.NonFiniteError, ArithmeticError),
    ],
)
def test_every_error_is_ours_and_a_matching_stdlib_one(error: type[Exception], stdlib: type[Exception]) -> None:
    assert issubclass(error, GrpoError) and issubclass(error, stdlib)


@pytest.mark.parametrize("error", CLASSES)
def test_errors_cross_processes(error: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(error("what was given")))

    assert type(copy) is error and str(copy) == "what was given"


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    # contracts.md, "Names": 0 done, 1 failed, 2 the user's mistake, 3 the abstention limit, 130 interrupted and saved.
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 130]
    assert UserError("x").exit_code == errors.DataError("x").exit_code == errors.PluginError("x").exit_code == 2
    assert errors.AbstentionLimitError("x").exit_code == 3
    assert GrpoError("x").exit_code == errors.InfrastructureError("x").exit_code == 1


def test_of_many_names_some_are_listed() -> None:
    message = str(unknown_name("task", "t7x", [f"t{number:02}" for number in range(100)]))
    assert message.endswith("t38, t39 and 60 more")
