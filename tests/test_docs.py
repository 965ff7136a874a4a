"""The documentation is true: its commands run and print what the pages show, its Python runs.

In a ```console block, a line that begins with `$ ` is a command and the lines below it are its output, where `…` stands
for anything and lines may be left out; the numbers of a command that trains are those of one machine, and any will do.
A ```python block runs; one with `>>>` is a doctest; a block below `<!-- from FILE -->` is a part of that file,
word for word. What does not run is listed here with its reason.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import griffe
import pytest
import yaml
from documentation_pages import PAGES, ROOT, Command, blocks, check_output, commands, run_in_one_shell

from grpo_core.launch.sweep.configurations import configurations
from grpo_core.launch.sweep.definition import read_definition
from grpo_sdk.interop.export import TARGETS, Target

SOURCES = [str(folder) for folder in ROOT.glob("packages/*/src")]

NOT_RUN = {
    r"git clone ": "the address is the reader's",
    r"uv (sync|venv)|source ": "made the environment that runs this test; tests/test_tutorials.py makes one",
    r"uv run pytest": "is what runs this test",
    r"bash \.ci/run": "is what runs this test",
    r"uv (build|run bump-my-version) ": "makes a release; tests/test_packaging.py and test_release.py do",
    r"uv run python docs/build_site\.py": "tests/test_site.py builds the site",
    r"(uv )?pip install ": "needs a package registry; tests/test_packaging.py and test_tutorials.py install",
    r"(?!.*(--dry-run|grpo profiles)).*(Qwen|SmolLM2)": "needs a model from outside",
    r"grpo .*apology\.py": "asks a judge; tests/test_judges_example.py runs it against a local server",
    r"grpo rollouts .*--export ": "needs a viewer's package; packages/grpo-sdk/tests/interop/rollouts/test_export.py",
    r"(vf-eval|inspect eval|python environment\.py) ": "needs another environment; tests/test_peers.py",
    r"grpo .* rhyme\.couplet": "follows the pip install; tests/test_tutorials.py installs the example",
}
"""Commands that no test runs: a pattern of the command -> why."""

SLOW = (
    r"(uv run )?grpo-run($| .*--max-steps| --seed)",
    r"(RUN=\$\()?grpo run .*--config",
    r"RUN=\$\(grpo-run .*--max-steps",
    r"grpo run --max-steps",
    r"grpo (warm-start|resume|publish|rollouts|replay|forecast|games|report) ",
    r"grpo runs",
    r"grpo sweep (?!.*--dry-run)",
    r"grpo (archive|restore) ",
    r"(uv run )?grpo eval ",
    r"grpo check .*--fuzz",
    r"ls (\$RUN|model)",
)
"""Commands that load a model, or take minutes, and those that need what they leave; run with -m slow."""

SLOW_PYTHON = ("from grpo_core import train", "from grpo_core import evaluate")
"""Likewise blocks of Python that hold one of these."""

IN_TEST_PEERS = ("skyrl", "openenv", "openrlhf", "tinker", "art", "atropos", "open_instruct", "nemo_gym", "nemo_rl")
NOT_RUN_PYTHON = {
    "GRPOTrainer(": "needs a model from outside; packages/grpo-sdk/tests/interop/trl/test_reward.py trains",
    "from swift.rewards": "needs a package of its own environment; tests/test_peers.py runs it",
    "from inspect_ai import": "likewise; tests/test_foreign_tasks.py runs such tasks",
    **{f"grpo_sdk.interop.{peer}": "likewise; tests/test_peers.py runs it" for peer in IN_TEST_PEERS},
}
"""Blocks of Python that no test runs, whose imports of ours are checked: what they hold -> why."""


def reason(command: Command) -> str:
    """Why no test runs it, or nothing."""
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command.text)), "")


def is_slow(command: Command) -> bool:
    return not reason(command) and any(re.match(pattern, command.text) for pattern in SLOW)


def is_quick(command: Command) -> bool:
    return not reason(command) and not is_slow(command)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that looks like the checkout to a command, so that nothing is written into the real one."""
    for name in ("examples", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    return tmp_path


def shell(texts: Sequence[str], home: Path, programs: Path) -> list[tuple[int, str]]:
    """Exit code and output of commands in a reader's shell, whose Python programs are those of a folder."""
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    # Neither the tests' limit of threads, nor what tells a command that `uv run` started it.
    hidden = ("OMP_NUM_THREADS", "UV_RUN_RECURSION_DEPTH")
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return run_in_one_shell(texts, home, kept | {"PATH": path})


def pages_with(is_quick: Callable[[str], bool], is_slow: Callable[[str], bool]) -> list[Any]:
    """Pages that have something quick to run, and those that have something slow."""
    quick = [pytest.param(page, False, id=page) for page in PAGES if is_quick(page)]
    marks = [pytest.mark.slow, pytest.mark.timeout(1800)]
    return [*quick, *(pytest.param(page, True, id=f"{page}, all", marks=marks) for page in PAGES if is_slow(page))]


@pytest.mark.parametrize(
    ("page", "slow"),
    pages_with(lambda page: any(map(is_quick, commands(page))), lambda page: any(map(is_slow, commands(page)))),
)
def test_commands_print_what_the_page_shows(page: str, slow: bool, home: Path, programs: Path) -> None:
    todo = [command for command in commands(page) if is_quick(command) or (slow and is_slow(command))]
    # Without `uv run`, since this environment is what it would make, and with 30 steps where a page has hundreds.
    texts = [re.sub(r"^uv run ", "", each.text) for each in todo]
    outcomes = shell([re.sub(r"(grpo-run .*--max-steps) \d{3,}", r"\1 30", text) for text in texts], home, programs)
    for command, (code, output) in zip(todo, outcomes, strict=True):
        check_output(page, command, code, output, any_number=is_slow(command))


def python_blocks(page: str, *, slow: bool) -> list[str]:
    found = [code for source, code in blocks(page, "python") if not source]
    found = [code for code in found if not any(text in code for text in NOT_RUN_PYTHON)]
    return [code for code in found if slow == any(text in code for text in SLOW_PYTHON)]


@pytest.mark.parametrize(
    ("page", "slow"),
    pages_with(lambda page: bool(python_blocks(page, slow=False)), lambda page: bool(python_blocks(page, slow=True))),
)
def test_python_runs(page: str, slow: bool, home: Path, programs: Path) -> None:
    script = "set -e\n" + "".join(f"{each.text}\n" for each in commands(page) if each.text.startswith("cd "))
    for is_session, each in groupby(enumerate(python_blocks(page, slow=slow)), key=lambda block: ">>>" in block[1]):
        files = {str(home / f"block{number}"): code for number, code in each}
        for file, code in files.items():
            Path(file).write_text(code)
        script += f"python -m doctest -o ELLIPSIS {' '.join(files)}\n" if is_session else ""
        script += "".join(f"python {file}\n" for file in files if not is_session)
    [(code, printed)] = shell([f"({script})"], home, programs)

    assert code == 0, printed


@cache
def members_of(module: str) -> frozenset[str]:
    """The names of a module of ours, without importing it, or any other."""
    (file,) = {
        file
        for source in SOURCES
        for name in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py")
        if (file := Path(source, name)).exists()
    }
    return frozenset(griffe.visit(module, file, file.read_text(encoding="utf-8")).members)


SHELL = re.compile(r"(grpo|grpo-run|pip|python|torchrun|ssh|export|for|VLLM_\w+=\S+|GRPO_\w+=\S+)\s")
"""How a block without a language begins that is typed into a shell."""


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_run_can_be_read_and_imports_what_exists(page: str) -> None:
    scripts = [code for _, code in blocks(page, "(?:text)?") if SHELL.match(code)]
    scripts += [code for _, code in blocks(page, "bash") if "$ " not in code]
    scripts += [command.text for command in commands(page) if reason(command)]
    checked = subprocess.run(["bash", "-n"], input="\n".join(scripts), capture_output=True, text=True)
    assert checked.returncode == 0, f"{page}: {checked.stderr}"
    assert all(yaml.safe_load(text) for _, text in blocks(page, "yaml"))
    assert all(tomllib.loads(text) for _, text in blocks(page, "toml"))
    for source, code in blocks(page, "(?:python|toml)"):
        assert not source or code in (ROOT / source).read_text(encoding="utf-8"), f"{page}: not in {source}:\n{code}"
        if any(text in code for text in NOT_RUN_PYTHON):
            tree = compile(code, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            for each in ast.walk(tree):
                if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("grpo_"):
                    missing = {name.name for name in each.names} - members_of(each.module or "")
                    assert not missing, f"{page}: {each.module} has no {missing}"


def test_the_generated_pages_are_current(programs: Path) -> None:
    # A process of its own: what other tests have loaded and registered is not on the pages.
    command = [programs / "python", ROOT / "docs" / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sweeps_of_the_guide_are_valid(tmp_path: Path) -> None:
    files = [text for _, text in blocks("docs/how-to/sweeps.md", "yaml")]
    for text in files:
        (file := tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
        definition = read_definition([str(file)])
        if definition.method != "optuna":
            assert configurations(definition)
    assert len(files) == 2


def test_every_reason_not_to_run_is_used() -> None:
    everything = [command.text for page in PAGES for command in commands(page)]
    python = [code for page in PAGES for _, code in blocks(page, "python")]

    for pattern in (*NOT_RUN, *SLOW):
        assert any(re.match(pattern, text) for text in everything), f"{pattern} matches no command: delete it"
    for text in (*NOT_RUN_PYTHON, *SLOW_PYTHON):
        assert any(text in code for code in python), f"{text} is in no block: delete it"


@pytest.mark.parametrize("trainer", TARGETS.values(), ids=lambda target: target.name)
def test_the_page_of_a_trainer_shows_its_export(trainer: Target) -> None:
    page = f"docs/how-to/trainers/{trainer.title.casefold()}.md"
    assert any(command.text.startswith(f"grpo export {trainer.name} ") for command in commands(page))
