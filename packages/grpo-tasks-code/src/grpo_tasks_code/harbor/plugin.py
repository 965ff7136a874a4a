"""Plugin `harbor`, with its task `harbor.task`: rows, prompt, turns, reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from grpo_sdk import InfrastructureError, Invalid, Message, Prompt, Row, Task, hookimpl, reward
from grpo_sdk.data import DataError, split_of
from grpo_tasks_code.extraction import script_of
from grpo_tasks_code.harbor.episode import episode
from grpo_tasks_code.harbor.folders import RefusedError, TaskFolder, find_folders, read_folder
from grpo_tasks_code.harbor.settings import MAX_COMMAND_S, MAX_TESTS_S, HarborConfig
from grpo_tasks_code.sandbox.host.shell import ShellRun, shell_level
from grpo_tasks_code.sandbox.results import readable

DONE = "DONE"
"""Line with which an answer ends the work, in several turns."""
_SHOWN_SKIPPED = 3


class HarborRow(Row):
    """A task folder.

    Attributes:
        folder: Its name; empty where `path` is the folder itself.
        instruction: Text of instruction.md.
        workdir: Folder in which commands start.
        files: Hash of all its files.
    """

    folder: str
    instruction: str
    workdir: str
    files: str


def load(config: HarborConfig) -> Iterator[HarborRow]:
    """Task folders of Harbor, by name; those that cannot be run here are left out, and counted in the conditions."""
    for tool in config.tool_folders:
        if not Path(tool).is_dir() or tool == "/":
            raise DataError(f"harbor.task: tools={tool}: no folder that commands could see; give folders of programs.")
    rows, skipped = _listed(config)
    if not rows:
        name, why = skipped[0]
        more = f" (and {len(skipped) - 1} more folders, none of which can be run)" if len(skipped) > 1 else ""
        raise DataError(f"harbor.task: {name}: {why}{more}.")
    is_split = len(rows) + len(skipped) > 1 and "{split}" not in (config.path or "")
    yield from (row for row in rows if not is_split or split_of(row.files) == config.split)


def _path(config: HarborConfig) -> Path:
    if config.path is None:
        raise DataError("harbor.task needs a folder: 'harbor.task?path=FOLDER', a task of Harbor or a folder of them.")
    return Path(config.path.replace("{split}", config.split)).expanduser()


@lru_cache(maxsize=4)
def _listed(config: HarborConfig) -> tuple[list[HarborRow], list[tuple[str, str]]]:
    """The rows of the folders that can be run, and (name, reason) of those that cannot."""
    rows, skipped = [], []
    for root in find_folders(_path(config)):
        try:
            folder = read_folder(root, on_host=config.environment == "host")
        except RefusedError as error:
            skipped.append((root.name, str(error)))
            continue
        rows.append(
            HarborRow(
                id=folder.name,
                gold=folder.gold,
                folder="" if root == _path(config) else root.name,
                instruction=folder.instruction,
                workdir=folder.workdir,
                files=folder.digest,
            )
        )
    return rows, skipped


@lru_cache(maxsize=8)  # they hold their files
def _folder_of(row: HarborRow, config: HarborConfig) -> TaskFolder:
    """The folder of a row, as it was when the row was loaded.

    Raises:
        InfrastructureError: it has changed or is gone.
    """
    path = _path(config) / row.folder
    try:
        folder = read_folder(path, on_host=config.environment == "host")
    except RefusedError as error:
        raise InfrastructureError(f"task folder {path.name!r}: {error}") from None
    if folder.digest != row.files:
        raise InfrastructureError(f"task folder {path.name!r} has changed since it was loaded; start again")
    return folder


def prompt(row: HarborRow, config: HarborConfig) -> Prompt:
    """The instruction, and how to answer."""
    how = f"You work with bash on Linux, without a network, in the folder {row.workdir}. " + (
        "Answer with one script in a ```bash block."
        if config.turns == 1
        else f"You have {config.turns} turns. In each, answer with one script in a ```bash block: it runs at once, "
        f"and you see its output. What it leaves running ends with it. A line {DONE} ends your work."
    )
    text = f"{row.instruction}\n\n{how}\n"
    return (Message(role="user", content=text),) if config.chat else f"{text}\n"


def respond(text: str, row: HarborRow, turn: int, config: HarborConfig, texts: Sequence[str]) -> str | None:
    """The output of the script, after all scripts ran anew in a fresh copy of the files; None if the work is done.

    Raises:
        InfrastructureError: the sandbox failed; the rollout is not scored.
    """
    if DONE in map(str.strip, text.splitlines()):
        return None
    try:
        script_of(text)
    except Invalid as invalid:
        return f"\n{str(invalid).capitalize()}. Answer with one script in a ```bash block, or a line {DONE}.\n\n"
    with episode(_folder_of(row, config), config) as box:
        *_, last = map(box.run, _scripts(texts))
    return _feedback(last, config)


def _scripts(texts: Sequence[str]) -> list[str]:
    scripts = []
    for text in texts:
        try:
            scripts.append(script_of(text))
        except Invalid:  # a turn without a script changes nothing
            continue
    return scripts


def _feedback(run: ShellRun, config: HarborConfig) -> str:
    output = run.output
    if len(output) > config.output_chars:
        half = config.output_chars // 2
        output = f"{output[:half]}\n… {len(output) - 2 * half} characters …\n{output[-half:]}"
    ended = {
        "ended": f"Exit code {run.code}",
        "timeout": f"Stopped after {config.command_timeout_s:g} s",
        "output_limit": "Stopped: too much output",
    }[run.status]
    return f"\n{ended}. Output:\n{output.rstrip()}\n\n"


def validate(text: str, row: HarborRow, config: HarborConfig, texts: Sequence[str]) -> float:
    """Run the scripts in a fresh copy of the task's files, and its tests on what they left.

    Raises:
        Invalid: no turn has a script, or after these scripts the tests give no reward, as they do after the solution.
        InfrastructureError: the sandbox failed, or the tests cannot be decided here; the completion is not scored.
    """
    scripts = _scripts(texts) or [script_of(text)]
    folder = _folder_of(row, config)
    with episode(folder, config) as box:
        for script in scripts:
            box.run(script)
        verdict = box.verify()
    value = verdict.reward
    if (value is None or value <= 0) and (why := _undecidable(row, config)):
        raise InfrastructureError(readable(f"{folder.name}: {verdict.why or 'the tests gave 0'}, and {why}"))
    if value is None:  # the task's own solution has a reward, so the lack of one is the model's doing
        raise Invalid(readable(verdict.why))
    if abs(value) > config.reward_max:
        raise InfrastructureError(
            f"{folder.name}: its tests gave {value:g}, beyond reward_max={config.reward_max:g}; set the option."
        )
    return value


@lru_cache(maxsize=1024)
def _undecidable(row: HarborRow, config: HarborConfig) -> str:
    """Why a failure says nothing about a model; empty where the task's own solution earns a reward here.

    The tools are this machine's, not those of the task's image: tests that want to install something fail whatever the
    model did. Runs once for each task in each worker, and only after a completion that earned nothing.
    """
    folder = _folder_of(row, config)
    if "solve.sh" not in folder.files("solution"):
        return "it has no solution/solve.sh, which would show that its tests work here"
    with episode(folder, config) as box:
        box.solve()
        verdict = box.verify()
    if verdict.reward is not None and verdict.reward > 0:
        return ""
    reason = f": {verdict.output.splitlines()[-1]}" if verdict.output else ""
    return f"so they do for its own solution: its tests or its solution need what this machine lacks{reason}"


@reward(1.0)
def passing(answer: float, config: HarborConfig) -> float:
    """The reward of the tests, divided by `reward_max`."""
    return answer / config.reward_max


def conditions(config: HarborConfig) -> dict[str, str]:
    """The isolation and the tools on which every score depends, and the folders that are left out."""
    tools = ", ".join(("/usr", *config.tool_folders))
    image = "no image is built: FROM is not used" + ("; nor is RUN" if config.environment == "host" else "")
    found = {
        "sandbox": str(shell_level()),
        "environment": f"tools of this machine ({tools}); {image}",
    }
    rows, skipped = _listed(config) if config.path else ([], [])
    if rows and skipped:
        shown = [f"{name}: {why}" for name, why in skipped[:_SHOWN_SKIPPED]]
        shown += [f"and {len(skipped) - _SHOWN_SKIPPED} more"] if len(skipped) > _SHOWN_SKIPPED else []
        found["left out"] = f"{len(skipped)} of {len(rows) + len(skipped)} folders: {'; '.join(shown)}"
    return found


TASK = Task(
    "task",
    load,
    prompt,
    validate,
    (passing,),
    config=HarborConfig,
    row=HarborRow,
    version="2",
    respond=respond,
    max_turns=lambda config: config.turns,
    max_completion_length=1024,
    timeout_s=3 * (MAX_TESTS_S + MAX_COMMAND_S),  # a backstop: scripts and tests have limits of their own
    conditions=conditions,
    exempt={"split": "a folder of one task is every split"},
)
"""Value: the reward that the task's tests write, from 0 to 1; 0 where there is no script."""


@hookimpl
def grpo_tasks() -> list[Task]:
    """The task of a folder, or of a folder of such folders."""
    return [TASK]
