import io
import json
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import recorded_shop
import yaml
from absent_trainers import GUESS, HEAP, SUMS, WORDS

from grpo_sdk.cli.main import main
from grpo_sdk.errors import UserError
from grpo_sdk.interop.export import TARGETS, Cluster, export_files, target_of
from grpo_sdk.plugins.tasks import load_task

CHAT_GUESS = GUESS.replace("GUESS", "CHAT_GUESS")
WITHOUT_TOOLS = [target for target in TARGETS if target != "verl"]


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
    texts = [row_text(trainer, each) for each in records(trainer, "math.arithmetic?size=5", test_size=2)]
    assert [task.row_from_json(text) for text in texts] == task.with_options(size=5).rows()
    test = [row_text(trainer, each) for each in records(trainer, "math.arithmetic?size=5", "test", test_size=2)]
    assert len(test) == 2 and not {*test} & {*texts}
    assert len(records(trainer, "math.arithmetic?size=5", size=3, test_size=2)) == 3


@pytest.mark.parametrize("trainer", TARGETS)
def test_files_are_valid_and_the_readme_says_what_each_is_for(trainer: str, tmp_path: Path) -> None:
    made = files(trainer, "math.arithmetic?size=16", test_size=2)
    readme = made["README.md"]
    assert "pip install 'grpo-tasks-math==" in readme and TARGETS[trainer].install in readme
    assert "16 rows to train on, 2 to test on" in readme and "hangs or crashes" in readme
    assert ("UV_OVERRIDE" in readme) == ("overrides.txt" in made)
    for name, text in made.items():
        assert name == "README.md" or name in readme, name
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


def test_areal_gets_its_configuration() -> None:
    config = yaml.safe_load(files("areal")["config.yaml"])
    assert config["cluster"]["n_nodes"] == 2 and config["cluster"]["n_gpus_per_node"] == 4
    assert config["actor"]["path"] == "org/a model" and config["rollout"]["backend"] == "sglang:d4p1t1"
    assert config["train_dataset"]["path"] == "train.jsonl"


def test_verl_gets_its_agent_loop_and_one_row_per_game() -> None:
    made = files("verl")
    assert "trainer.n_gpus_per_node=4" in made["train.sh"] and "trainer.nnodes=2" in made["train.sh"]
    (loop,) = yaml.safe_load(made["agent_loop.yaml"])
    assert loop == {"name": "grpo", "_target_": "grpo_sdk.interop.verl.TaskAgentLoop"}
    record = records("verl", HEAP, size=2, test_size=1)[0]
    assert load_task(record["data_source"]).config.opponent == "greedy"
    assert record["prompt"][0]["content"] == "first sees 5:"


def test_verl_gets_place_for_a_completion_and_with_tools_for_all_turns_and_results() -> None:
    tools, plain = (files("verl", spec)["train.sh"] for spec in (recorded_shop.SPEC, "math.arithmetic?size=16"))
    assert f"data.max_response_length={48 * 7}" in tools  # four turns, and what is between them
    assert f"data.max_response_length={load_task('math.arithmetic').task.max_completion_length}" in plain


def test_prime_rl_shares_out_the_gpus_and_keeps_the_task_in_a_slurm_job() -> None:
    one = tomllib.loads(files("prime-rl", cluster=Cluster(1, 5))["rl.toml"])
    assert one["deployment"] == {"gpus_per_node": 5, "num_train_gpus": 3, "num_infer_gpus": 2} and "slurm" not in one
    made = files("prime-rl", "math.arithmetic?size=16", cluster=Cluster(3, 4))
    many = tomllib.loads(made["rl.toml"])
    nodes = {"num_train_nodes": 2, "num_infer_nodes": 1}
    assert many["deployment"] == {"type": "multi_node", "gpus_per_node": 4, **nodes}
    assert many["slurm"]["pre_run_command"].startswith("uv pip install 'grpo-tasks-math==")
    taskset = {"id": "grpo-verifiers", "spec": "math.arithmetic?split=train&size=16"}
    assert many["orchestrator"]["train"]["source"][0]["env"]["taskset"] == taskset
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


@pytest.mark.parametrize(("trainer", "spec", "name", "text"), [
    ("openrlhf", CHAT_GUESS, "train.sh", "--data.apply_chat_template \\\n"),
    ("openrlhf", GUESS, "train.sh", "--data.label_key label \\\n    --data.max_len"),  # and no chat template
    ("slime", WORDS, "train.sh", "--group-rm"),
    ("areal", SUMS, "README.md", "has to lie there on every machine"),
])  # fmt: skip
def test_files_depend_on_the_task(trainer: str, spec: str, name: str, text: str) -> None:
    assert text in files(trainer, spec)[name]
    assert text not in files(trainer, "math.arithmetic?size=16")[name] or spec == GUESS


@pytest.mark.parametrize(("trainer", "spec", "message"), [
    ("slime", GUESS, "has several turns; slime's reward gets one completion"),
    ("openrlhf", HEAP, "is a game, which OpenRLHF cannot train"),
    ("prime-rl", WORDS, r"has the group reward shortest\(\)"),
    ("verl", "math.arithmetik", "arithmetic"),
    *((target, recorded_shop.SPEC, "has tools; in ") for target in WITHOUT_TOOLS),
])  # fmt: skip
def test_what_a_trainer_cannot_train_is_refused(trainer: str, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        files(trainer, spec)


def test_paths_of_options_are_whole_and_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows").mkdir()
    lines = "".join(json.dumps({"question": f"{n} + 0", "answer": n}) + "\n" for n in range(60))
    for name in ("rows/blob", "rows/train.jsonl", "rows/test.jsonl"):
        (tmp_path / name).write_text(lines)
    (tmp_path / "link.jsonl").symlink_to("rows/blob")
    for path in ("link.jsonl", "~/link.jsonl", "rows/../link.jsonl", "rows/{split}.jsonl", "rows/tra*.jsonl"):
        whole = "link.jsonl" if "link" in path else path
        made = files("prime-rl", f"core.qa?path={path}&verifier=number")
        assert prime_spec(made, "train") == f"core.qa?path={tmp_path}/{whole}&verifier=number&split=train", path
        assert "has to lie there on every machine" in made["README.md"]


def test_files_and_models_of_this_folder_are_whole_and_what_is_no_path_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evals.py").write_text("")
    (tmp_path / "tasks.py").write_text(
        "from dataclasses import replace\nfrom grpo_core import TaskConfig\nfrom scoring_tasks import sums\n"
        "class Config(TaskConfig):\n    file: str = ''\n    style: str = ''\n    scale: float = 1.0\n"
        "task = replace(sums, config=Config)\n"
    )
    for options, written in (
        ("file=evals.py&style=evals.py", f"file={tmp_path}/evals.py&style=evals.py"),  # a file, and a text
        ("path=hub:owner/name&file=http://host/evals.py", "path=hub:owner/name&file=http://host/evals.py"),
    ):
        assert records("areal", f"tasks.py:task?{options}", size=2)[0]["task"] == f"{tmp_path}/tasks.py:task?{written}"
    made = export_files(target_of("areal"), SUMS, "./model", Cluster())
    assert yaml.safe_load(made["config.yaml"])["actor"]["path"] == str(tmp_path / "model")


def test_the_command_writes_a_new_folder_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    for arguments, message in ((("openrlf", SUMS), "no trainer 'openrlf'"), (("slime", GUESS), "several turns")):
        assert main(["export", *arguments, str(folder)]) == 2
        assert message in capsys.readouterr().err and not folder.exists()
    assert main(["export", "openrlhf", SUMS, str(folder), "--nodes", "2"]) == 0
    assert "16 GPUs of 2 machines" in capsys.readouterr().out
    names = ["README.md", "agent.py", "test.jsonl", "train.jsonl", "train.sh"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert f"agent_executor({SUMS!r})" in (folder / "agent.py").read_text()
    assert main(["export", "openrlhf", SUMS, str(folder)]) == 2
    assert "exists already" in capsys.readouterr().err
