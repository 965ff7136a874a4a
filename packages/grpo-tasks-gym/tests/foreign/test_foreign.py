import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from grpo_sdk import BoundTask, UserError
from grpo_sdk.data import DataError
from grpo_sdk.task.bound import bind_config
from grpo_sdk.task.spec import TaskSpec
from grpo_tasks_gym.foreign.options import ForeignConfig
from grpo_tasks_gym.foreign.source import checked, identifier
from grpo_tasks_gym.foreign.task import foreign_task


@pytest.fixture(autouse=True, scope="module")
def _greetings_are_importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield


class GreetingsConfig(ForeignConfig):
    library: ClassVar[tuple[str, str, str]] = ("json", "json", "json")
    opener: ClassVar[str] = "greetings:open_greetings"

    def target(self) -> dict[str, str]:
        return {"greeting": "hello"}


GREETINGS = foreign_task("greetings", GreetingsConfig, "Greetings.", lambda config: "greetings.py")


def bound(**options: str) -> BoundTask:
    spec = TaskSpec("demo.greetings", 1.0, options)
    return BoundTask(GREETINGS, spec.name, bind_config(GREETINGS, spec.name, spec), spec)


def test_rewards_settings_and_version_are_those_of_the_library() -> None:
    task = bound()
    assert [(spec.name, spec.weight, spec.maximum) for spec in task.rewards] == [
        ("exact", 0.8, 1.0), ("short", 0.2, 1.0), ("length", 0.0, 1.0),
    ]  # fmt: skip
    assert (task.task.version, task.task.stop, task.task.max_completion_length) == ("greetings 1", ("\n",), 32)
    assert task.conditions["not used"] == "2 epochs"
    assert task.conditions["isolation"].startswith("greetings.py runs in processes of its own")


def test_rows_are_split_by_their_prompts_and_keep_their_ids() -> None:
    rows = {split: bound(split=split).rows() for split in ("train", "validation", "test")}
    ids = [row.id for each in rows.values() for row in each]
    assert len(ids) == len(set(ids)) == 40 and len(rows["train"]) > 20
    assert {f"g{number}" for number in range(1, 40, 2)} <= set(ids), "ids of the library"
    for row in rows["train"]:
        assert bound().prompt(row) == row.prompt and row.gold == f"hello {re.findall(r'[0-9]+', row.prompt)[0]}"


def test_rows_that_share_an_id_are_kept_and_equal_ones_are_one() -> None:
    rows = bound(args="act:ids,count:6", split_by="none").rows()
    assert [row.data["answer"] for row in rows] == ["hello 1", "hello 2", "hello 3", "hello 4", "hello 5"]
    assert rows[0].id == "same" and len({row.id for row in rows}) == 5


def test_messages_are_plain_text_where_a_model_has_no_template() -> None:
    (row,) = bound(args="act:chat,count:1", split_by="none").rows()
    assert [message["role"] for message in bound().prompt(row)] == ["system", "user"]
    assert bound(chat="false").prompt(row) == "Be kind.\n\nSay hello 0."


def test_all_rows_are_in_every_split_where_that_is_wanted() -> None:
    assert bound(split_by="none", split="test", limit="7").rows() == bound(split_by="none", limit="7").rows()
    assert len(bound(split_by="none", limit="7").rows()) == 7


def test_an_argument_of_the_library_may_choose_the_split() -> None:
    task = bound(split_by="part", split="validation", args="count:3")
    assert '"args":{"count":3,"part":"validation"}' in task.config.job()
    assert len(task.rows()) == 3
    with pytest.raises(UserError, match="split_by=part gives args the name of the split; args names it as well"):
        bound(split_by="part", args="part:test")


def test_parts_are_scored_weighted_and_bounded() -> None:
    task = bound(split_by="none", limit="3")
    row = task.rows()[1]
    good = task.score("hello 1", row)
    assert (good.value, good.parts, good.solved) == (1.0, {"exact": 1.0, "short": 1.0, "length": 7.0}, True)
    for text, why in [
        ("none", "scorer exact gave no score"),
        ("big", "exact(): 7 is above its maximum 1; state it: ?maximum=7"),
        ("few", "short(): it has no value; there are exact"),
    ]:
        score = task.score(text, row)
        assert (score.value, score.fault) == (None, "infrastructure") and why in score.why

    weighted = bound(split_by="none", limit="3", weights="short:0,exact:2", maximum="exact:10")
    assert [(spec.weight, spec.maximum) for spec in weighted.rewards] == [(2.0, 10.0), (0.0, 1.0), (0.0, 1.0)]
    assert weighted.score("big", row).value == 14.0


@pytest.mark.parametrize(("options", "message"), [
    ({"args": "act:refuse"}, "task 'demo.greetings': it needs a sandbox."),
    ({"args": "act:raise"}, "its code failed: RuntimeError: no luck (greetings.py:"),
    ({"args": "act:hang", "load_timeout_s": "1"}, "took longer than 1 s; allow more: ?load_timeout_s=600"),
    ({"args": "act:kill"}, "its code ended the process that reads its rows (its worker was killed by SIGKILL, twice)"),
    ({"weights": "exakt:1"}, "weights names 'exakt'; the rewards are exact, short, length"),
    ({"maximum": "exact:-1"}, "must be numbers above 0"),
    ({"args": "a:1,a:2"}, "names 'a' twice"),
    ({"args": "count"}, "is name:value, several separated by commas"),
    ({"path": "rows.jsonl"}, "this one reads no other file"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        bound(**options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("args", "message"), [
    ({"act": "set"}, "row 1: cannot be written as JSON"),
    ({"wide": 2_000_000}, "with its data; at most 1048576 are read"),
    ({"count": 100_001}, "more than 100000 rows; read the first with .limit=100000"),
])  # fmt: skip
def test_rows_that_are_too_many_too_long_or_no_json_are_refused(args: dict[str, Any], message: str) -> None:
    from greetings import Greetings

    with pytest.raises(DataError, match=message):
        list(checked(Greetings(args).records(), None))


def test_a_split_without_rows_says_how_many_the_others_have() -> None:
    with pytest.raises(DataError, match=r"it has 1 rows, by hash 1 train.*; \?split_by=none has all") as caught:
        bound(split="test", args="count:1").rows()
        bound(split="validation", args="count:1").rows()
    assert "?path" not in str(caught.value)
    with pytest.raises(DataError, match="it has no rows"):
        bound(args="count:0").rows()


def test_rows_come_in_pieces() -> None:
    assert len(bound(split_by="none", args="count:20,wide:900000").rows()) == 20  # of 8 MiB each


def test_the_code_runs_in_a_process_with_a_fixed_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    assert bound(args="act:seed").task.version == "0"


@pytest.mark.parametrize(("text", "args"), [
    ("shots:3,split:hard", {"shots": 3, "split": "hard"}),
    ("deep:true,rate:0.5,day:2024-01-01", {"deep": True, "rate": 0.5, "day": "2024-01-01"}),
    ('{"list": [1, 2]}', {"list": [1, 2]}),
])  # fmt: skip
def test_arguments_are_read_as_yaml_or_json(text: str, args: dict[str, Any]) -> None:
    assert GreetingsConfig.model_validate_strings({"args": text}).args == args


def test_names_become_identifiers_that_differ() -> None:
    assert identifier("pkg/model graded-qa") == "pkg_model_graded_qa"
    assert identifier("3rd") == "score_3rd"
    assert identifier("match", ["match", "match_2"]) == "match_3"
    assert identifier("…") == "score"
