"""The wheels as users get them: built, installed into clean environments, each plugin alone with the SDK, and used.

Installing takes what a registry serves; a local CPU torch comes from UV_FIND_LINKS, as in .ci/run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, TREES, call, new_environment

from grpo_sdk import __version__

pytestmark = [pytest.mark.packaging, pytest.mark.network, pytest.mark.timeout(1200)]

MAX_MODEL_BYTES = 10 * 2**20


class Environment:
    """A virtual environment with some of the wheels and what they depend on.

    Args:
        folder: Where it is made, and where its programs run.
        wheels: Folder of our wheels.
        requirements: What is installed, and options of `uv pip install`.
        python: Version of Python.
        pinned: Whether everything has the version that the workspace pins.
    """

    def __init__(
        self, folder: Path, wheels: Path, *requirements: str, python: str = "3.11", pinned: bool = True
    ) -> None:
        self.folder = folder
        constraints = ("--constraint", str(wheels / "constraints.txt")) if pinned else ()
        new_environment(folder, wheels, *constraints, *requirements, python=python)

    def listing(self) -> str:
        """The installed packages, as JSON of `uv pip list`."""
        words = ("uv", "pip", "list", "--format", "json", "--python", str(self.folder / "venv"))
        return call(*words, cwd=self.folder).stdout

    def __call__(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return call(str(self.folder / "venv" / "bin" / program), *arguments, cwd=self.folder, check=check)


@pytest.fixture(scope="module")
def core(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core"), wheels, "grpo-core")


@pytest.fixture(scope="module")
def sdk(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("sdk"), wheels, "grpo-sdk", "grpo-tasks-math")


@pytest.fixture(scope="module")
def math(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("math"), wheels, "grpo-core", "grpo-tasks-math")


def test_wheels_hold_types_licence_and_a_small_model_and_no_tests(wheels: Path) -> None:
    ours = [*wheels.glob("grpo_core-*.whl"), *wheels.glob("grpo_sdk-*.whl"), *wheels.glob("grpo_tasks_*-*.whl")]
    for wheel in (each for each in ours if "rhyme" not in each.name):
        with zipfile.ZipFile(wheel) as archive:
            files = {entry.filename: entry.file_size for entry in archive.infolist()}
        assert any(name.endswith("/py.typed") for name in files) and any(name.endswith("/LICENSE") for name in files)
        # Templates of grpo new end in .py.in.
        assert not any(re.search(r"(^|/)(test_\w+|conftest)\.py$", name) for name in files)
        assert sum(size for name, size in files.items() if name.endswith(".safetensors")) <= MAX_MODEL_BYTES


def test_core_alone_says_what_to_install_and_reads_a_task_from_a_file(core: Environment) -> None:
    listing = json.loads(core("grpo", "tasks", "--json").stdout)
    assert ([task["name"] for task in listing["tasks"]], listing["broken"]) == (["core.qa"], [])
    done = core("grpo-run", "--max-steps", "1", check=False)

    assert done.returncode == 2 and "no task 'math.arithmetic'" in done.stderr and "Traceback" not in done.stderr
    assert "tiny" in core("grpo", "models").stdout
    assert "solved" in core("grpo", "sample", f"{ROOT}/examples/rhyme/rhyme.py:couplet", "-n", "1").stdout


def test_the_sdk_and_a_task_bring_no_trainer_and_score(sdk: Environment, tmp_path: Path) -> None:
    installed = {each["name"] for each in json.loads(sdk.listing())}
    assert not {"torch", "transformers", "datasets", "peft", "scipy", "trl", "numpy", "grpo-core"} & installed
    for words in SDK_ALONE:
        assert sdk("grpo", *words).stdout, words
    assert "has no judge" in sdk("grpo", "judge", "math.arithmetic", check=False).stderr
    (sampled,) = json.loads(sdk("grpo", "sample", "math.arithmetic", "-n", "1", "--json").stdout)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"row": sampled["row"], "completion": sampled["gold"]}))
    scored = sdk("grpo", "score", "math.arithmetic", "--file", str(tmp_path / "texts.jsonl"), "--json")
    assert json.loads(scored.stdout)["solved"]
    (variables := sdk.folder / ".env").write_text("GRPO_PLUGINS=core\n")
    listed = sdk("grpo", "tasks").stdout
    variables.unlink()
    assert "core.qa" in listed and "math.arithmetic" not in listed


@pytest.mark.parametrize(("words", "advice"), [
    ("run --task math.arithmetic", "pip install grpo-core"),
    ("serve math.arithmetic", "pip install 'grpo-sdk[serve]'"),
    ("export verl math.arithmetic verl", "pip install 'grpo-sdk[parquet]'"),
    ("sample math.gsm8k", "pip install 'grpo-sdk[hub]'"),
])  # fmt: skip
def test_what_the_sdk_alone_does_not_do_names_what_to_install(sdk: Environment, words: str, advice: str) -> None:
    done = sdk("grpo", *words.split(), check=False)
    assert done.returncode == 2 and advice in done.stderr and "Traceback" not in done.stderr


def test_the_math_plugin_trains_beside_core(math: Environment) -> None:
    assert "math.arithmetic" in math("grpo", "tasks").stdout
    done = math("grpo-run", "--max-steps", "2", "--json", "eval.size=16")

    summary = json.loads(done.stdout)
    assert summary["steps"] == 2
    assert {"initial", "final"} <= set(summary["tasks"]["math.arithmetic"])
    assert list(math.folder.glob("training_runs/run_*/training_state/step_final/model/*.safetensors"))


def test_a_plugin_from_outside_installs_beside_them(math: Environment, wheels: Path) -> None:
    python = str(math.folder / "venv")
    install = ("uv", "pip", "install", "--python", python, "--no-deps", "--no-index", "--find-links", str(wheels))
    call(*install, "grpo-tasks-rhyme", "grpo-plugin-good", cwd=math.folder)

    names = {row["name"] for row in json.loads(math("grpo", "tasks", "--json").stdout)["tasks"]}
    assert {"rhyme.couplet", "good.shout", "math.arithmetic"} <= names
    assert math("grpo", "shout", "moon").stdout == "MOON\n"


@pytest.mark.parametrize(("plugin", "task", "names"), [
    ("chess", "chess.environment?size=4", {"chess"}),
    ("code", "code.execution?size=4", {"code", "harbor"}),
    ("games", "games.nim?size=4", {"games"}),
    ("gym", "reasoning_gym.leg_counting?size=4", {"inspect", "nemo_gym", "openenv", "reasoning_gym"}),
])  # fmt: skip
def test_each_plugin_alone_with_the_sdk_is_used(
    wheels: Path, tmp_path: Path, plugin: str, task: str, names: set[str]
) -> None:
    environment = Environment(tmp_path, wheels, f"grpo-tasks-{plugin}")
    listed = {
        row["name"].partition(".")[0] for row in json.loads(environment("grpo", "tasks", "--json").stdout)["tasks"]
    }
    assert listed == {"core", *names}
    assert environment("grpo", "sample", task, "-n", "1").stdout


def test_mlflow_holds_what_a_run_measured(wheels: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheels, "grpo-core[mlflow]", "grpo-tasks-math")
    run = ["run", "--task", "math.arithmetic", "--model", "tiny", "tracking.trackers=mlflow", "eval.size=4"]
    small = ["trainer.prompts_per_step=2", "trainer.num_generations=4", "--output-dir", str(tmp_path / "runs")]
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    grpo = str(environment.folder / "venv" / "bin" / "grpo")
    stopped = [*run, *small, "--max-steps", "3", "--stop-after", "2"]
    assert call(grpo, *stopped, cwd=tmp_path, check=False, MLFLOW_TRACKING_URI=address).returncode == 130
    (folder,) = (tmp_path / "runs").iterdir()
    call(grpo, "resume", str(folder), cwd=tmp_path, MLFLOW_TRACKING_URI=address)
    found = json.loads(environment("python", "-c", READ_MLFLOW, address).stdout)
    assert found == {"name": folder.name, "status": "FINISHED", "steps": [1, 2, 3], "task": "math.arithmetic"}


SDK_ALONE = [
    ("new", "grpo-tasks-made"),
    ("check", "math.arithmetic", "-k", "gold"),
    ("check", "math.arithmetic", "--fuzz", "20"),
    ("sample", "math.arithmetic", "-n", "1"),
    ("explain", "math.arithmetic", "--completion", " 12"),
    ("export", "openrlhf", "math.arithmetic", "openrlhf", "--size", "4", "--test-size", "2"),
    ("tasks", "show", "math.arithmetic"),
    ("doctor",),
]

READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
(run,) = [run for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
steps = [each.step for each in client.get_metric_history(run.info.run_id, "reward")]
facts = {"name": run.info.run_name, "status": run.info.status, "steps": steps, "task": run.data.params["task"]}
print(json.dumps(facts))
"""


ALL = tuple(Path(tree).name for tree in TREES if tree.startswith("packages/"))

TASKS = ("math.arithmetic", "code.execution", "chess.environment", "games.nim", "reasoning_gym.leg_counting")


def without_torch(folder: Path) -> tuple[str, str]:
    """Options that leave torch out: a registry has CUDA builds of gigabytes only."""
    (file := folder / "overrides.txt").write_text("torch; python_version < '0'\n")
    return "--overrides", str(file)


@pytest.mark.parametrize("python", ["3.12", "3.13", "3.14"])
def test_tasks_and_scores_work_with_another_python(wheels: Path, tmp_path: Path, python: str) -> None:
    """With the newest versions of all dependencies but torch."""
    if call("uv", "python", "find", "--no-python-downloads", python, cwd=tmp_path, check=False).returncode:
        pytest.skip(f"no Python {python} is installed here")
    environment = Environment(tmp_path, wheels, *without_torch(tmp_path), *ALL, python=python, pinned=False)

    assert json.loads(environment("grpo", "tasks", "--json").stdout)["broken"] == []
    for task in TASKS:
        assert "prompt" in environment("grpo", "sample", f"{task}?size=4", "-n", "1").stdout
    assert "gold    ok" in environment("grpo", "check", "math.arithmetic", "-k", "gold").stdout


def torch_here() -> str:
    """The requirement of a local CPU torch, or of the pinned one."""
    folders = os.environ.get("UV_FIND_LINKS", "").split()
    return next((str(file) for folder in folders for file in Path(folder).glob("torch-*-cp311-*.whl")), "torch==2.13.0")


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_a_run_with_the_lowest_and_the_newest_dependencies(wheels: Path, tmp_path: Path, resolution: str) -> None:
    """All but torch, of which a registry has CUDA builds of gigabytes only."""
    projects = (tomllib.loads(file.read_text())["project"] for file in ROOT.glob("packages/*/pyproject.toml"))
    bounds = {
        each for project in projects for each in project["dependencies"] if not each.startswith(("grpo-", "torch"))
    }
    wanted = ("--resolution", resolution, torch_here(), *ALL, *sorted(bounds))
    environment = Environment(tmp_path, wheels, *wanted, pinned=False)

    assert json.loads(environment("grpo", "tasks", "--json").stdout)["broken"] == []
    for task in TASKS:
        assert "prompt" in environment("grpo", "sample", f"{task}?size=4", "-n", "1").stdout
    run = ("grpo-run", "--max-steps", "2", "--json", "lora.enabled=true", "eval.size=16")
    assert json.loads(environment(*run).stdout)["steps"] == 2
    (folder,) = environment.folder.glob("training_runs/run_*")
    environment("grpo", "resume", str(folder), "--from-step", "final", "--additional-steps", "1")


def test_a_plugin_that_was_built_for_this_version_works_with_the_next_patch(wheels: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "grpo-tasks-reverse"
    call(sys.executable, "-m", "grpo_core", "new", plugin.name, cwd=tmp_path)
    assert f'"grpo-sdk~={".".join(__version__.split(".")[:2])}"' in (plugin / "pyproject.toml").read_text()
    call("uv", "build", "--wheel", "--out-dir", str(tmp_path / "plugin"), str(plugin), cwd=tmp_path)
    following = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), __version__)
    for name in ("grpo-core", "grpo-sdk"):
        shutil.copytree(wheels / "trees" / "packages" / name, tree := tmp_path / name)
        for file in (tree / "pyproject.toml", *tree.glob("src/*/__init__.py")):
            text = file.read_text().replace(f'version__ = "{__version__}"', f'version__ = "{following}"')
            file.write_text(text.replace(f'\nversion = "{__version__}"', f'\nversion = "{following}"'))
        call("uv", "build", "--wheel", "--out-dir", str(tmp_path / "plugin"), str(tree), cwd=tmp_path)
    links = ("--find-links", str(tmp_path / "plugin"))
    environment = Environment(tmp_path, wheels, *links, "grpo-core", "grpo-tasks-reverse")

    assert environment("grpo", "--version").stdout == f"grpo-sdk {following}\ngrpo-core {following}\n"
    task = "grpo_tasks_reverse.reverse"
    assert environment("grpo", "check", task, "-k", "gold").returncode == 0
    # A plugin of ours takes the next patch of core, too.
    call("uv", "pip", "install", "--python", str(environment.folder / "venv"), "--no-deps", "--find-links", str(wheels),
         "grpo-tasks-games", cwd=tmp_path)  # fmt: skip
    call("uv", "pip", "check", "--python", str(environment.folder / "venv"), cwd=tmp_path)
    summary = json.loads(
        environment("grpo-run", "--task", task, "--model", "tiny", "--max-steps", "1", "--json", "eval.size=4").stdout
    )
    assert summary["steps"] == 1
