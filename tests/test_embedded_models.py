"""The models inside the packages: small, safe to load, recorded from their first call on, and right for their tasks."""

import json
from pathlib import Path

import pytest

from grpo_core.config import RunConfig, resolve
from grpo_core.training.warm_start import RECORD
from grpo_sdk import load_task
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.host import default_host
from grpo_sdk.records.run_folder import flat

HOST = default_host()
MODELS = HOST.models()
TASKS = {
    name: task for plugin in HOST.names for name, task in HOST.tasks(plugin).items() if task.default_model is not None
}

MAX_BYTES = 16_000_000
"""Of the weights: what a wheel may carry."""


def test_every_package_of_tasks_that_needs_no_download_has_its_model() -> None:
    assert set(MODELS) == {"tiny", "tools-tiny", "code-tiny", "games-tiny", "chess-tiny"}
    assert {task.default_model for task in TASKS.values()} == set(MODELS)


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_folder_holds_weights_json_and_a_record_and_nothing_that_runs(model: EmbeddedModel) -> None:
    files = {file.name: file for file in Path(model.path).iterdir()}
    weights = files.pop("model.safetensors")
    assert weights.stat().st_size <= MAX_BYTES
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", RECORD} <= set(files)
    assert all(json.loads(file.read_text()) for file in files.values())
    record = json.loads(files[RECORD].read_text())
    while isinstance(record["start"], dict):  # made from nothing
        assert record["command"].startswith("grpo warm-start ") and record["evaluation"]
        record = record["start"]
    assert record["start"].startswith("new:")
    assert set(model.task_defaults) <= set(TASKS)
    for task, settings in model.task_defaults.items():
        resolved = resolve(RunConfig(task=task, model=model.name))
        assert {key: getattr(resolved.config.trainer, key.removeprefix("trainer.")) for key in settings} == settings
        assert {resolved.sources[key].kind for key in flat(settings, ".")} == {"profile"}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_alone_runs_its_model_as_it_was_made(name: str) -> None:
    resolved = resolve(RunConfig(task=name))
    assert resolved.config.model == TASKS[name].default_model
    task = load_task(resolved.config.task)
    made_with = MODELS[resolved.config.model].task_options
    own = {key: value for key, value in made_with.items() if key in type(task.config).model_fields}
    assert task.config == load_task(name, **own).config
