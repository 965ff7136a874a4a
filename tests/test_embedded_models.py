"""The models inside the packages: small, safe to load, recorded from their first call on, and right for their tasks."""

import json
from pathlib import Path

import pytest

from grpo_core.config import RunConfig, resolve
from grpo_core.policy.fresh import tokenizer_of
from grpo_core.training.warm_start import RECORD
from grpo_sdk import load_task
from grpo_sdk.chat.text_form import TextForm
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.host import default_host
from grpo_sdk.records.run_folder import flat
from grpo_sdk.task.row import Message

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


def test_the_demos_of_tools_have_the_tokens_of_an_episode() -> None:
    task, tokenizer = load_task("math.calculator?calls=1&size=200"), tokenizer_of("tools-tiny")
    turns = iter(task.demos())
    (tool,) = task.task.all_tools()
    for (question, call), (conversation, answer) in zip(turns, turns, strict=True):
        assert isinstance(question, str) and isinstance(conversation, str)
        text_form = TextForm(tokenizer, (tool,), question, "")
        first = text_form.first(question)
        called = tuple(tokenizer(question + call)["input_ids"][len(first) :])
        completion = Completion(called, (0.0,) * len(called), call, "stop", 0)
        (read,) = text_form.read(first, completion).calls
        assert read.arguments is not None
        said = [Message(role="user", content=question), Message(role="assistant", content=call)]
        result = Message(role="tool", content=tool.function(**read.arguments))
        second = text_form.following(first, completion, [*said, result], 1)
        assert [*second, *tokenizer(answer)["input_ids"]] == tokenizer(conversation + answer)["input_ids"]
