"""`grpo_core.evaluate`: held-out evaluation as Python calls it, with objects, keyword arguments and progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_core.config import EngineConfig, ScoringConfig
from grpo_core.display.progress import watched
from grpo_core.display.results import as_html, as_text, evaluation_table
from grpo_core.evaluation.one_model import Candidate, evaluate_as
from grpo_core.evaluation.sampling import ToolForm
from grpo_core.evaluation.settings import OPEN, EvaluationSettings, ModelOptions, Open
from grpo_sdk.callbacks import Callback
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.task.row import Split

if TYPE_CHECKING:
    from rich.table import Table


def evaluate(
    task: Tasks,
    model: str,
    *,
    adapter: str | None = None,
    base: str | None = None,
    size: int | Open | None = OPEN,
    split: Split | Open = OPEN,
    subset_frac: float | None = None,
    n: int | Open = OPEN,
    temperature: float | Open = OPEN,
    top_p: float | Open = OPEN,
    max_completion_length: int | Open = OPEN,
    seed: int = 0,
    batch_size: int | None = None,
    surprisal: bool = True,
    device: str = "auto",
    precision: str = "auto",
    max_batch_tokens: int = EngineConfig().max_batch_tokens,
    scoring: ScoringConfig | None = None,
    endpoint: str | None = None,
    concurrency: int = 8,
    tool_choice: str | None = None,
    tool_form: ToolForm = "native",
    output_dir: Path | str | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> EvaluationResults:
    """Evaluate a model on held-out rows of one task or several.

    Settings that are not given come from the task (`EvaluationDefaults`), else they are as below.

    Args:
        task: A task spec, a `Task` object, or a list of these; a mixture is evaluated task by task, its weights do not
            matter.
        model: Embedded name, local folder, GGUF file or hub id; with an endpoint, its name there.
        adapter: A PEFT adapter to put on it.
        base: Another model, the control: evaluated on the same rows, and every result says the difference over it.
        size: Rows per task, 512; None is all of the split.
        split: Split of the rows: that of the spec (`TASK?split=train`), else `test`.
        subset_frac: Share of the rows to evaluate, always the same ones.
        n: Completions a row, 1; from 2 on, pass@k is reported.
        temperature: 0, greedy; 0.7 for several completions a row.
        top_p: Nucleus sampling, 1.
        max_completion_length: Tokens per completion, 256; a task may need fewer.
        seed: Seed of sampling above temperature 0.
        batch_size: Rows answered at once; None is as many as the memory holds.
        surprisal: Also measure surprisal and entropy per token.
        device: Device of the model.
        precision: Floating-point type of the model's products.
        max_batch_tokens: Tokens held at once on a CPU; on an accelerator its free memory decides.
        scoring: The scorers' worker processes.
        endpoint: An OpenAI-compatible endpoint that answers in place of a model of this process.
        concurrency: Requests to it in flight.
        tool_choice: At an endpoint: `auto`, `none`, `required`, or the tool that the model must call in each turn.
        tool_form: How an endpoint is told of tools: its own `tools` (native), or a message of the system (text).
        output_dir: Receives `MODEL_TASK/` with every completion and the tables; None writes nothing.
        overwrite: Replace what is there of an earlier evaluation.
        callbacks: Notified of what was chosen, of progress and of each result.
        progress: Show progress: in a terminal, a notebook's cell, or as lines on stderr.

    Returns:
        Task name -> the numbers of `summary.json`; with a base, the base's own under `base`. Its `repr` is a table.
    """
    refuse_in_worker("evaluate()")
    settings = {
        "size": size, "split": split, "n": n, "temperature": temperature, "top_p": top_p,
        "max_completion_length": max_completion_length,
    }  # fmt: skip
    named = name_tasks(task)  # keeps objects until the end
    with watched(callbacks, progress=progress) as watching:
        results = evaluate_as(
            named.spec,
            Candidate(
                model=model,
                adapter=adapter,
                base=base,
                endpoint=endpoint,
                concurrency=concurrency,
                tool_choice=tool_choice,
                tool_form=tool_form,
            ),
            {name: value for name, value in settings.items() if value is not OPEN},
            EvaluationSettings(subset_frac=subset_frac, seed=seed, batch_size=batch_size, surprisal=surprisal),
            ModelOptions(
                device=device,
                precision=precision,
                engine=EngineConfig(max_batch_tokens=max_batch_tokens),
                scoring=scoring or ScoringConfig(),
            ),
            output_dir=output_dir,
            overwrite=overwrite,
            callbacks=watching,
        )
    return EvaluationResults(results)


class EvaluationResults(dict[str, dict[str, Any]]):
    """Task name -> the numbers of `summary.json`, shown as a table."""

    def __repr__(self) -> str:
        return as_text(self._table())

    def _repr_html_(self) -> str:
        return as_html(self._table())

    def _table(self) -> Table:
        return evaluation_table("task", self.items())
