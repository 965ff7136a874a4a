"""Examples of supervised fine-tuning: the demos of a mixture's tasks, in TRL's form, and their tokens."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from grpo_core.evaluation.sampling import answer_limit
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.task_objects import is_object
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.quotas import Quotas
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.spec import TaskSpec, parse_task_specs

if TYPE_CHECKING:
    from datasets import Dataset

IGNORED = -100
"""Label of a token that teaches nothing, torch's own."""

ENCODED_AT_ONCE = 10_000
"""Texts that the tokenizer gets at once, and spreads over the cores."""

LOOKED_AT = 256
"""Demos that are compared with the length that a completion may have."""

Demos = list[tuple[Prompt, str]]
"""Prompts and their gold completions."""


def examples_of(
    task: str,
    wanted: int,
    workers: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    *,
    seed: int = 0,
) -> list[Mapping[str, Any]]:
    """Prompt-completion examples, the tasks in exact proportion, repeating rows of the shorter ones as needed.

    Args:
        task: Spec of a task or a mixture.
        wanted: Examples at most: what a training needs. Of a single task there are never more than it has demos.
        workers: Processes that make the demos of as many tasks at once. The examples are the same for any number.
        progress: Receives what is done, how many tasks are ready, and how many there are.
        seed: Seed of the order of each task's demos: rows in a file may be sorted.
    """
    specs = parse_task_specs(task)
    demos: list[Demos] = []
    for ready in _demos(specs, workers):
        demos.append(ready)
        if progress is not None and len(specs) > 1:
            progress("making examples", len(demos), len(specs))
    for index, each in enumerate(demos):
        random.Random(f"examples/{seed}/{index}").shuffle(each)
    quotas = Quotas([spec.weight for spec in specs])
    seen = [0] * len(specs)
    examples: list[Mapping[str, Any]] = []
    for index in quotas.take(wanted if len(specs) > 1 else min(wanted, len(demos[0]))):
        prompt, completion = demos[index][seen[index] % len(demos[index])]
        seen[index] += 1
        examples.append(_example(prompt, completion))
    return examples


def texts_of(example: Mapping[str, Any]) -> list[str]:
    """The texts of an example's prompt and completion."""
    texts: list[str] = []
    for part in (example["prompt"], example["completion"]):
        texts += [part] if isinstance(part, str) else [message["content"] for message in part]
    return texts


def warn_of_cut(spec: str, examples: Sequence[Mapping[str, Any]], tokenizer: Any, callbacks: Callbacks) -> None:
    """Warn where the model learns completions that it could never end: training and evaluation cut them off."""
    general = EvaluationSettings().max_completion_length
    limit = max(answer_limit(bind(each).task.max_completion_length, general) for each in parse_task_specs(spec))
    ids = tokenizer([texts_of(example)[-1] for example in examples[:LOOKED_AT]], add_special_tokens=False)["input_ids"]
    if cut := sum(len(each) + 1 > limit for each in ids):  # with the end token
        callbacks.on_warning(
            f"{cut} of the first {len(ids)} demos have more tokens than a completion of the task may have ({limit}): "
            "what is learned from them is cut off. Raise the task's max_completion_length, shorten the demos, or give "
            "a tokenizer that needs fewer tokens for them (--vocab-size learns one)."
        )


def dataset_of(
    examples: Sequence[Mapping[str, Any]], tokenizer: Any, progress: Callable[[str, int, int], None]
) -> Dataset:
    """The dataset that TRL trains on: of texts their tokens and labels, of messages the examples as they are.

    The tokens are those that TRL makes, one example at a time, of texts: of prompt, completion and end together, with
    labels from where they differ from the prompt's own. Chat templates are left to TRL.

    Args:
        examples: Examples, all of texts or all of messages.
        tokenizer: Tokenizer with an end token.
        progress: Receives what is done, how many examples are ready, and how many there are.
    """
    from datasets import Dataset

    if not all(isinstance(example["prompt"], str) for example in examples):
        return Dataset.from_list(list(examples))
    tables = []
    for start in range(0, len(examples), ENCODED_AT_ONCE):
        tables.append(_encoded(examples[start : start + ENCODED_AT_ONCE], tokenizer))
        progress("tokenizing examples", min(len(tables) * ENCODED_AT_ONCE, len(examples)), len(examples))
    return Dataset(pa.concat_tables(tables)).with_format("numpy")


def within(dataset: Dataset, context: int | None) -> Dataset:
    """The examples that fit a model's context.

    Raises:
        UserError: none does.
    """
    if context is None:
        return dataset
    lengths = np.array([len(ids) for ids in dataset["input_ids"]])
    if lengths.min() > context:
        raise UserError(
            f"the shortest example has {lengths.min()} tokens, and the model's context is {context}. Use a model with "
            "a longer context, or options of the task that make its examples shorter."
        )
    return dataset if lengths.max() <= context else dataset.select(np.flatnonzero(lengths <= context))


def _encoded(examples: Sequence[Mapping[str, Any]], tokenizer: Any) -> pa.Table:
    """Columns `input_ids` and `labels` of examples that are texts."""
    end = tokenizer.eos_token
    prompts = [example["prompt"] for example in examples]
    endings = [example["completion"].removesuffix(end) + end for example in examples]
    wholes = [prompt + ending for prompt, ending in zip(prompts, endings, strict=True)]
    rows = [np.asarray(ids, dtype=np.int32) for ids in tokenizer(wholes)["input_ids"]]
    labels = [row.copy() for row in rows]
    for row, label, ids in zip(rows, labels, tokenizer(prompts)["input_ids"], strict=True):
        shared = min(len(ids), len(row))
        differs = np.flatnonzero(row[:shared] != np.asarray(ids[:shared], dtype=np.int32))
        label[: differs[0] if len(differs) else shared] = IGNORED
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    columns = {"input_ids": rows, "labels": labels}
    return pa.table({name: pa.ListArray.from_arrays(offsets, np.concatenate(each)) for name, each in columns.items()})


def _demos(specs: Sequence[TaskSpec], workers: int) -> Iterator[Demos]:
    """The demos of each task, in order."""
    apart = [spec for spec in specs if not is_object(spec)]  # a child has no objects of this process
    if min(workers, len(apart)) < 2:
        yield from map(demos_of, specs)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads
    try:
        with ProcessPoolExecutor(min(workers, len(apart)), mp_context=context) as pool:
            made = pool.map(demos_of, apart)
            for spec in specs:
                yield demos_of(spec) if is_object(spec) else next(made)
    except BrokenProcessPool:
        raise UserError(
            f"workers={workers}: a process that made examples ended at once, or was killed, as for its memory. Each "
            "imports the program that started it: a script has to call warm_start() under "
            "'if __name__ == \"__main__\":'. With workers=1 there is none."
        ) from None


def demos_of(spec: TaskSpec) -> Demos:
    """Make the demos of one task."""
    return list(bind(spec).demos())


def _example(prompt: Prompt, completion: str) -> Mapping[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": completion}
    return {"prompt": list(prompt), "completion": [{"role": "assistant", "content": completion}]}
