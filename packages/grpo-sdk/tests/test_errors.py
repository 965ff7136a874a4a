import inspect
import pickle

import pytest

from grpo_sdk import errors
from grpo_sdk.errors import ExitCode, GrpoError, near_match, unknown_name

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, GrpoError)]


def test_a_misspelt_name_gets_the_near_one_and_everything_that_exists() -> None:
    error = unknown_name("task", "chess.polcy", ["math.gsm8k", "chess.policy"])
    assert str(error) == "no task 'chess.polcy'. Did you mean 'chess.policy'? Available: chess.policy, math.gsm8k"
    assert str(unknown_name("loss", "zzz", [])) == "no loss 'zzz'. Available: (none)"
    many = unknown_name("task", "t7x", [f"t{number:02}" for number in range(100)])
    assert str(many).endswith("t38, t39 and 60 more")


@pytest.mark.parametrize(("name", "names", "near"), [
    ("H100", ["v100", "h100"], " Did you mean 'h100'?"),
    ("grpo_device", ["GRPO_DEVICE"], " Did you mean 'GRPO_DEVICE'?"),
    ("zzz", ["policy", "gsm8k"], ""),
])  # fmt: skip
def test_a_name_in_other_letters_is_near(name: str, names: list[str], near: str) -> None:
    assert near_match(name, names) == near


@pytest.mark.parametrize(("error", "stdlib", "code"), [
    # Exit codes that scripts rely on: 1 failed, 2 the user's mistake, 3 the abstention limit.
    (errors.UserError, ValueError, 2),
    (errors.UnknownNameError, LookupError, 2),
    (errors.PluginError, ValueError, 2),
    (errors.DataError, ValueError, 2),
    (errors.InfrastructureError, RuntimeError, 1),
    (errors.AbstentionLimitError, RuntimeError, 3),
    (errors.NonFiniteError, ArithmeticError, 1),
])  # fmt: skip
def test_every_error_is_ours_and_a_matching_stdlib_one(error, stdlib, code):
    assert issubclass(error, GrpoError) and issubclass(error, stdlib)
    assert error("x").exit_code == code
    assert [each.value for each in ExitCode] == [0, 1, 2, 3, 130]


@pytest.mark.parametrize("error", CLASSES)
def test_errors_cross_processes(error: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(error("what was given")))
    assert type(copy) is error and str(copy) == "what was given"
