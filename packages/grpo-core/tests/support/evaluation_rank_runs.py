"""Evaluates as one rank: `python -m torch.distributed.run … evaluation_rank_runs.py FOLDER OUT [shard|stop|trl]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grpo_core.config import EngineConfig, EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.engines.base import StopRequested
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.answers import in_process
from grpo_core.evaluation.held_out import HeldOutEvaluator, held_out_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import ModelOptions
from grpo_core.interop.trl import EvaluationCallback
from grpo_core.plugins.tasks import load_task
from grpo_core.policy.load import load_policy
from grpo_core.policy.ranks import Ranks, joined
from grpo_core.rollouts.task_scoring import Scoring


def evaluated(folder: Path, out: Path, ranks: Ranks, *, shard: bool = False, stop: bool = False) -> dict[str, Any]:
    """What this rank knows after an evaluation of five rows, twice each, and of a task with a single row."""
    config = RunConfig(
        task=f"{folder}/tasks.py:letters",
        model=str(folder / "model"),
        output_dir=str(out / "runs"),
        device="cpu",
        trainer=TrainerConfig(max_completion_length=6),
        engine=EngineConfig(max_batch_tokens=64),  # several batches, and more of them on one rank
        scoring=ScoringConfig(workers=1),
        eval=EvalConfig(n=2, temperature=1.0, size=5),
    )
    trained = {"letters": load_task(config.task), "one": load_task(f"{folder}/tasks.py:one")}
    tasks, _ = held_out_tasks(config, trained)
    policy = load_policy(str(folder / "model"), device="cpu")
    if shard:
        policy.shard()
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return stop and ranks.rank == 1 and len(asked) > 1

    engine = NativeEngine(policy.model, policy.tokenizer, max_batch_tokens=64)
    model = in_process(policy, engine, tokens_at_once=64, prompts_at_once=None, warn=print, ranks=ranks)
    with Scoring({label: held.task for label, held in tasks.items()}, config.scoring, policy) as scoring:
        evaluator = HeldOutEvaluator(tasks, model, scoring, run=out / "runs" / "run_1", should_stop=should_stop)
        try:
            metrics = evaluator.run("initial", 0)
        except StopRequested:
            return {"stopped": sorted(evaluator.results["letters"])}
    return {"metrics": metrics, "results": evaluator.results}


def called_back(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """What a trainer of `transformers` logs on this rank."""
    callback = EvaluationCallback(
        f"{folder}/tasks.py:letters",
        settings=EvaluationSettings(size=5, n=2, temperature=1.0, max_completion_length=6),
        loading=ModelOptions(scoring=ScoringConfig(workers=1)),
    )
    policy = load_policy(str(folder / "model"), device="cpu")
    rank = {"world_size": ranks.size, "process_index": ranks.rank, "local_process_index": ranks.rank}
    arguments = SimpleNamespace(bf16=False, fp16=False, output_dir=str(folder), device=ranks.device, **rank)
    state = SimpleNamespace(global_step=0, log_history=[])
    callback.on_train_begin(arguments, state, None, model=policy.model, processing_class=policy.tokenizer)
    return {"metrics": state.log_history[0]}


def main(folder: str, out: str, *options: str) -> None:
    with joined("cpu", 60) as ranks:
        if options == ("trl",):
            found = called_back(Path(folder), ranks)
        else:
            found = evaluated(Path(folder), Path(out), ranks, **dict.fromkeys(options, True))
        (Path(out) / f"rank_{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
