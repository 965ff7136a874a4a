from __future__ import annotations

import io
import json
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import group_tasks
import pyarrow.parquet
import pytest
import scoring_tasks
import small_games
import yaml
from click.testing import CliRunner

from grpo_core.cli.group import LazyGroup
from grpo_core.errors import UserError
from grpo_core.interop.export import TARGETS, Cluster, export_files, target_of
from grpo_core.plugins.tasks import load_task

SUMS = f"{Path(scoring_tasks.__file__)}:sums"
WORDS = f"{Path(group_tasks.__file__)}:words"
GUESS = f"{Path(small_games.__file__)}:GUESS"
CHAT_GUESS = f"{Path(small_games.__file__)}:CHAT_GUESS"
HEAP = f"{Path(small_games.__file__)}:HEAP"


def files(trainer: str, spec: str = SUMS, cluster: Cluster = Cluster(2, 4), **sizes: int) -> dict[str, str]:  # noqa: B008
    made = export_files(target_of(trainer), spec, "org/a model", cluster, **sizes)
    return {name: content if isinstance(content, str) else content.decode("latin-1") for name, content in made.items()}


def records(trainer: str, spec: str = SUMS, split: str = "train", **sizes: int) -> list[dict[str, Any]]:
    made = export_files(target_of(trainer), spec, "model", Cluster(), **sizes)
    if trainer == "prime-rl":
        return [{"row": row.model_dump_json()} for row in load_task(prime_spec(made, split)).rows()]
    content = made[f"{split}.{TARGETS[trainer].rows}"]
    assert isinstance(content, bytes)
    if trainer == "verl":
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return rows
    return [json.loads(line) for line in content.splitlines()]


def prime_spec(made: Mapping[str, str | bytes], split: str) -> str:
    """The spec from which prime-rl's taskset makes the rows of a split."""
    orchestrator = tomllib.loads(str(made["rl.toml"]))["orchestrator"]
    (source,) = orchestrator["train" if split == "train" else "eval"]["source"]
    return str(source["env"]["taskset"]["spec"])


def row_text(trainer: str, record: dict[str, Any]) -> str:
    if trainer == "verl":
        return str(record["reward_model"]["ground_truth"])
    if trainer == "nemo-rl":
        return str(json.loads(record["output"])["row"])
    return str(record["row" if trainer in ("areal", "swift", "prime-rl") else "label"])


def test_a_trainer_is_found_by_the_name_that_people_know() -> None:
    assert target_of("ms-swift") is target_of("swift")
    assert [target_of(target.title).name for target in TARGETS.values()] == [*TARGETS]


@pytest.mark.parametrize("trainer", TARGETS)
def test_rows_are_the_tasks_and_sizes_are_kept(trainer: str) -> None:
    task = load_task("math.arithmetic")
    made = records(trainer, "math.arithmetic?size=5", test_size=2)
    assert [task.row_from_json(row_text(trainer, each)) for each in made] == task.with_options(size=5).rows()
    test = records(trainer, "math.arithmetic?size=5", "test", test_size=2)
    assert len(test) == 2 and not {row_text(trainer, each) for each in test} & {
        row_text(trainer, each) for each in made
    }
    assert len(records(trainer, "math.arithmetic?size=5", size=3, test_size=2)) == 3


@pytest.mark.parametrize("trainer", TARGETS)
def test_the_readme_says_what_to_install_and_what_becomes_of_what_cannot_be_scored(trainer: str) -> None:
    made = files(trainer, "math.arithmetic?size=16", test_size=2)
    readme = made["README.md"]
    assert "pip install 'grpo-tasks-math==" in readme and TARGETS[trainer].install in readme
    assert "16 rows to train on, 2 to test on" in readme and "hangs or crashes" in readme
    assert "$" not in readme.replace("$ ", "").replace("$SLIME", "").replace("${MODEL_ARGS", "").replace(
        "$MEGATRON", ""
    ).replace("$PWD", "")
    assert ("UV_OVERRIDE" in readme) == ("overrides.txt" in made)
    for name in made:
        assert name == "README.md" or name in readme, name


@pytest.mark.parametrize("trainer", TARGETS)
def test_scripts_are_valid_and_name_cluster_and_model(trainer: str, tmp_path: Path) -> None:
    made = files(trainer)
    for name, text in made.items():
        if name.endswith(".sh"):
            (tmp_path / name).write_text(text)
            subprocess.run(("bash", "-n", str(tmp_path / name)), check=True)
            assert "'org/a model'" in text
        elif name.endswith(".py"):
            compile(text, name, "exec")
        elif name.endswith(".yaml"):
            assert yaml.safe_load(text)
        elif name.endswith(".toml"):
            assert tomllib.loads(text)["model"]["name"] == "org/a model"
    if trainer == "areal":
        config = yaml.safe_load(made["config.yaml"])
        assert config["cluster"]["n_nodes"] == 2 and config["cluster"]["n_gpus_per_node"] == 4
        assert config["actor"]["path"] == "org/a model" and config["rollout"]["backend"] == "sglang:d4p1t1"
        assert config["train_dataset"]["path"] == "train.jsonl"


def test_verl_gets_its_agent_loop_and_one_row_per_game() -> None:
    made = files("verl")
    assert "trainer.n_gpus_per_node=4" in made["train.sh"] and "trainer.nnodes=2" in made["train.sh"]
    assert yaml.safe_load(made["agent_loop.yaml"]) == [
        {"name": "grpo", "_target_": "grpo_core.interop.verl.TaskAgentLoop"}
    ]
    spec = f"{HEAP}?opponent=greedy&seat=first"
    record = records("verl", spec, size=2, test_size=1)[0]
    assert record["data_source"] == str(load_task(spec).spec) and record["prompt"][0]["content"] == "first sees 5:"


def test_prime_rl_shares_out_the_gpus_and_keeps_the_task_in_a_slurm_job() -> None:
    one = tomllib.loads(files("prime-rl", cluster=Cluster(1, 5))["rl.toml"])
    assert one["deployment"] == {"gpus_per_node": 5, "num_train_gpus": 3, "num_infer_gpus": 2} and "slurm" not in one
    made = files("prime-rl", "math.arithmetic?size=16", cluster=Cluster(3, 4))
    many = tomllib.loads(made["rl.toml"])
    assert many["deployment"] == {
        "type": "multi_node", "gpus_per_node": 4, "num_train_nodes": 2, "num_infer_nodes": 1,
    }  # fmt: skip
    assert many["slurm"]["pre_run_command"].startswith("uv pip install 'grpo-tasks-math==")
    assert many["orchestrator"]["train"]["source"][0]["env"]["taskset"] == {
        "id": "grpo-verifiers", "spec": "math.arithmetic?split=train&size=16",
    }  # fmt: skip
    assert "stop strings" in made["README.md"] and "stop strings" not in files("prime-rl")["README.md"]
    with pytest.raises(UserError, match="prime-rl needs 2 GPUs, and 1 is given"):
        files("prime-rl", cluster=Cluster(1, 1))


def test_nemo_rl_gets_an_environment_and_only_what_differs_from_its_example() -> None:
    made = files("nemo-rl", "math.arithmetic?size=16", test_size=3)
    config = yaml.safe_load(made["config.yaml"])
    assert config["cluster"] == {"gpus_per_node": 4, "num_nodes": 2}
    assert config["data"]["default"]["env_name"] in config["env"] and config["grpo"]["max_val_samples"] == 3
    assert config["policy"]["train_global_batch_size"] == 16 * 8 == config["grpo"]["num_prompts_per_step"] * 8
    assert config["policy"]["generation"]["stop_strings"] == list(load_task("math.arithmetic").task.stop)
    assert config["policy"]["model_name"] == "org/a model" and "register()" in made["train.py"]
    assert records("nemo-rl", size=1, test_size=1)[0]["input"] == load_task(SUMS).prompt(load_task(SUMS).rows()[0])


def test_openrlhf_writes_messages_by_the_chat_template_and_leaves_text_as_it_is() -> None:
    assert isinstance(records("openrlhf", CHAT_GUESS)[0]["prompt"], list)
    assert "    --data.apply_chat_template \\\n" in files("openrlhf", CHAT_GUESS)["train.sh"]
    assert records("openrlhf", GUESS)[0]["prompt"] == "guess:"
    text = files("openrlhf", GUESS)["train.sh"]
    assert "chat_template" not in text and "--data.label_key label \\\n    --data.max_len" in text


def test_group_rewards_ask_slime_for_groups() -> None:
    assert "--group-rm" in files("slime", WORDS)["train.sh"]
    assert "--group-rm" not in files("slime")["train.sh"]


@pytest.mark.parametrize(
    ("trainer", "spec", "message"),
    [
        ("slime", GUESS, "has several turns; slime's reward gets one completion"),
        ("areal", WORDS, r"has the group reward shortest\(\)"),
        ("openrlhf", f"{HEAP}?opponent=greedy", "is a game, which OpenRLHF cannot train"),
        ("nemo-rl", GUESS, "has several turns; NeMo-RL's reward gets one completion"),
        ("prime-rl", WORDS, r"has the group reward shortest\(\)"),
        ("verl", HEAP, r"plays first and second.*\?opponent=random"),
        ("verl", "math.arithmetik", "arithmetic"),
    ],
)
def test_what_a_trainer_cannot_train_is_refused(trainer: str, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        files(trainer, spec)


def test_a_file_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(scoring_tasks.__file__).parent)
    assert records("areal", "scoring_tasks.py:sums")[0]["task"] == SUMS
    assert "has to lie there on every machine" in files("areal", "scoring_tasks.py:sums")["README.md"]


def test_paths_of_options_are_whole_and_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows").mkdir()
    lines = "".join(json.dumps({"question": f"{n} + 0", "answer": n}) + "\n" for n in range(60))
    for name in ("rows/blob", "rows/train.jsonl", "rows/test.jsonl"):
        (tmp_path / name).write_text(lines)
    (tmp_path / "link.jsonl").symlink_to("rows/blob")
    for path, whole in (
        ("link.jsonl", "link.jsonl"), ("~/link.jsonl", "link.jsonl"), ("rows/{split}.jsonl", "rows/{split}.jsonl"),
        ("rows/../link.jsonl", "link.jsonl"), (f"{tmp_path}/link.jsonl", "link.jsonl"),
        ("rows/tra*.jsonl", "rows/tra*.jsonl"),
    ):  # fmt: skip
        made = files("prime-rl", f"core.qa?path={path}&verifier=number")
        assert prime_spec(made, "train") == f"core.qa?path={tmp_path}/{whole}&verifier=number&split=train", path
        assert "has to lie there on every machine" in made["README.md"]
    assert "has to lie there" not in files("prime-rl", "math.arithmetic?size=16")["README.md"]


def test_a_file_option_is_whole_and_what_is_no_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evals.py").write_text("")
    (tmp_path / "tasks.py").write_text(
        "from dataclasses import replace\nfrom grpo_core import TaskConfig\nfrom scoring_tasks import sums\n"
        "class Config(TaskConfig):\n    file: str = ''\n    style: str = ''\n    scale: float = 1.0\n"
        "task = replace(sums, config=Config)\n"
    )
    for options, written in (
        ("file=evals.py&style=evals.py", f"file={tmp_path}/evals.py&style=evals.py"),
        ("path=hub:owner/name&file=http://host/evals.py", "path=hub:owner/name&file=http://host/evals.py"),
    ):
        assert records("areal", f"tasks.py:task?{options}", size=2)[0]["task"] == f"{tmp_path}/tasks.py:task?{written}"


def test_a_model_of_this_folder_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = export_files(target_of("areal"), SUMS, "./model", Cluster())
    assert yaml.safe_load(made["config.yaml"])["actor"]["path"] == str(tmp_path / "model")


def invoked(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(LazyGroup("grpo"), ["export", *arguments], standalone_mode=False)
    return (1, str(result.exception)) if result.exception else (0, result.output)


def test_the_command_writes_a_new_folder_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert "no trainer 'openrlf'" in invoked("openrlf", SUMS, str(folder))[1]
    assert "several turns" in invoked("slime", GUESS, str(folder))[1] and not folder.exists()
    code, output = invoked("openrlhf", SUMS, str(folder), "--nodes", "2")
    assert code == 0 and "16 GPUs of 2 machines" in output
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md", "agent.py", "test.jsonl", "train.jsonl", "train.sh",
    ]  # fmt: skip
    assert f"agent_executor({SUMS!r})" in (folder / "agent.py").read_text()
    assert "exists already" in invoked("openrlhf", SUMS, str(folder))[1]
