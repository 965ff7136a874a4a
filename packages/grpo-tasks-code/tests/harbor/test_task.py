import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harbor_folders import COUNT, HELLO, write_folder

from grpo_sdk import Scorer, load_task
from grpo_sdk.errors import DataError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.turns import write_turns


def bash(script: str) -> str:
    return f"Let me see.\n```bash\n{script}\n```\n"


def task_of(folder: Path, base: Mapping[str, str] = HELLO, **changed: Any) -> BoundTask:
    """The task of a folder; names with `__` are its files, the others options."""
    files = {name: changed.pop(name) for name in list(changed) if "__" in name}
    return load_task("harbor.task", path=str(write_folder(folder, base, **files)), **changed)


def test_the_tests_decide_on_a_fresh_copy_for_every_rollout(tmp_path: Path) -> None:
    task = task_of(tmp_path, COUNT)
    (row,) = task.rows()
    with Scorer(task, workers=1) as scorer:
        destroys = bash("wc -l < data.txt > count.txt; rm data.txt")
        texts = [destroys, bash("grep -c . data.txt > count.txt"), bash("echo 4 > count.txt"), "no script"]
        scores = scorer.score(texts, [row] * len(texts))
    assert [score.value for score in scores] == [1.0, 1.0, 0.0, 0.0]
    assert [score.solved for score in scores] == [True, True, False, False]
    assert [score.valid for score in scores] == [True, True, True, False]
    assert scores[3].why == "invalid: no ```bash block"


@pytest.mark.parametrize(("writes", "value"), [
    ("echo 0.25 > $R/reward.txt", 0.25),
    ('echo \'{"exists": 1, "reward": 0.5}\' > $R/reward.json; echo 1 > $R/reward.txt', 0.5),
    ('echo \'{"exists": 0.75, "right": 0}\' > $R/reward.json', 0.75),
    ("echo -0.5 > $R/reward.txt", -0.5),
])  # fmt: skip
def test_rewards_are_read_as_harbor_reads_them(tmp_path: Path, writes: str, value: float) -> None:
    script = f"R=/logs/verifier\nif [ -e /app/hello.txt ]; then {writes}; else echo 1 > $R/reward.txt; fi\n"
    task = task_of(tmp_path, tests__test_dot_sh=script, solution__solve_dot_sh="true\n")
    assert task.score(bash("touch hello.txt"), task.rows()[0]).value == value


@pytest.mark.parametrize(
    "reward", ["", "nan", f"1{'0' * 400}", "[1]", '{"reward": "1"}', '{"reward": true}', "[" * 9000]
)
def test_a_completion_that_spoils_the_reward_has_none(tmp_path: Path, reward: str) -> None:
    script = "cd /app; cp spoilt /logs/verifier/reward.json || echo 1 > /logs/verifier/reward.txt"
    task = task_of(tmp_path, tests__test_dot_sh=script, solution__solve_dot_sh="true\n")
    score = task.score(bash(f"echo '{reward}' > spoilt"), task.rows()[0])
    assert (score.value, score.fault) == (0.0, "")


@pytest.mark.parametrize(("changed", "why"), [
    ({"tests__test_dot_sh": "exit 7\n"}, r"wrote no reward \(exit code 7\), and so they do for its own solution"),
    (
        {"tests__test_dot_sh": "uvx-not-here pytest || echo 0 > /logs/verifier/reward.txt\n"},
        "the tests gave 0, and so they do for its own solution.*uvx-not-here: command not found",
    ),
    ({"solution__solve_dot_sh": None}, "it has no solution/solve.sh"),
    ({"tests__test_dot_sh": "echo 3 > /logs/verifier/reward.txt\n"}, "beyond reward_max=1; set the option"),
])  # fmt: skip
def test_a_failure_that_says_nothing_of_the_model_abstains(tmp_path: Path, changed: dict[str, str], why: str) -> None:
    task = task_of(tmp_path, **changed)
    score = task.score(bash("true"), task.rows()[0])
    assert (score.value, score.fault) == (None, "infrastructure")
    assert re.search(why, score.why), score.why


def test_the_largest_reward_is_an_option(tmp_path: Path) -> None:
    task = task_of(tmp_path, tests__test_dot_sh="echo 3 > /logs/verifier/reward.txt\n", reward_max=4)
    assert task.score(bash("true"), task.rows()[0]).value == 0.75


def test_a_solution_of_several_files_is_no_completion_but_shows_that_the_tests_work(tmp_path: Path) -> None:
    files = {"solution__answer_dot_txt": "Hello, world!\n"}
    task = task_of(tmp_path, solution__solve_dot_sh="cp /solution/answer.txt hello.txt\n", **files)
    (row,) = task.rows()
    assert row.gold is None
    assert task.score(bash("true"), row).value == 0.0


def test_a_folder_that_changed_since_it_was_loaded_abstains(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    (row,) = task.rows()
    write_folder(tmp_path, {"tests/expected.txt": "Goodbye"})
    score = task.score(str(row.gold), row)
    assert score.value is None and "has changed since it was loaded" in score.why


def test_several_turns(tmp_path: Path) -> None:
    task = task_of(tmp_path, COUNT, turns=3, output_chars=100)
    (row,) = task.rows()
    assert (task.has_turns, task.max_turns) == (True, 3)
    look = bash("wc -l data.txt; echo 1 >> data.txt; exit 3")
    assert task.next_turn(row, [look]).prompt == "\nExit code 3. Output:\n3 data.txt\n\n"
    again = bash("wc -l < data.txt; seq 1000")
    state = task.next_turn(row, [look, again])
    text = str(state.prompt)
    assert text.startswith("\nExit code 0. Output:\n4\n1\n2\n") and "characters …" in text and len(text) < 200
    assert "no ```bash block" in str(task.next_turn(row, ["hm"]).prompt).lower()
    assert task.next_turn(row, [look, "I am\nDONE"]).prompt is None
    assert task.next_turn(row, [look, look, look]).prompt is None
    count = bash("expr $(wc -l < data.txt) - 1 > count.txt")
    assert task.score(write_turns([look, "hm", count]), row).solved
    assert not task.score(write_turns([look, "hm", "DONE"]), row).solved
    assert not task.score(write_turns(["hm", "DONE"]), row).valid


def test_a_script_that_runs_out_of_time_says_so(tmp_path: Path) -> None:
    task = task_of(tmp_path, turns=2, command_timeout_s=0.3)
    (row,) = task.rows()
    prompt = task.next_turn(row, [bash("echo a; sleep 9")]).prompt
    assert prompt == "\nStopped after 0.3 s. Output:\na\n\n"
    assert task.score(write_turns([bash("echo 'Hello, world!' > hello.txt; sleep 9")]), row).solved


def test_prompts_and_conditions(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    (row,) = task.rows()
    text = str(task.prompt(row))
    assert text.startswith('Create a file called hello.txt with "Hello, world!"')
    assert "/app" in text and "one script in a ```bash block" in text
    (message,) = task.with_options(chat=True, turns=4).prompt(row)
    assert message["role"] == "user" and "4 turns" in message["content"]
    assert task.conditions["sandbox"].startswith("L3 namespaces: commands see the host's /usr, read-only")
    assert task.conditions["environment"] == "tools of this machine (/usr); no image is built: FROM is not used"
    assert "left out" not in task.conditions


def test_folders_of_tools_come_first(tmp_path: Path) -> None:
    tool = tmp_path / "venv" / "bin" / "python3"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho own\n", encoding="utf-8")
    tool.chmod(0o755)
    task = task_of(tmp_path / "hello", tools=str(tmp_path / "venv"), turns=2)
    prompt = task.next_turn(task.rows()[0], [bash("python3")]).prompt
    assert prompt == "\nExit code 0. Output:\nown\n\n"
    assert str(tmp_path / "venv") in task.conditions["environment"]


@pytest.mark.parametrize("tools", ["/", "/no/such/folder"])
def test_folders_of_tools_are_looked_for_when_rows_are_read(tools: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"tools={tools}: no folder that commands could see"):
        task_of(tmp_path, tools=tools).rows()
