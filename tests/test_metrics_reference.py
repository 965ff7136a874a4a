"""Every logged metric is in the catalogue, with formula and healthy range, and every line of it is logged by a run."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from judge_server import judging
from pytest import MonkeyPatch

from grpo_core import train
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.tracking.aliases import ALIASES
from grpo_core.training.catalogue import CATALOGUE, owner_of

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from metric_texts import EVALUATIONS, NOT_KEPT, SECTIONS  # a module of the documentation

TASK, GAME = "math.arithmetic", "games.kuhn_poker"
JUDGED = Path(__file__).parents[1] / "examples" / "tasks" / "apology.py:apology"
TOOLS = Path(__file__).parents[1] / "packages" / "grpo-sdk" / "tests" / "scoring" / "shop_tasks.py:SHOP"

LOSS = "KL and entropy in the loss, noise of micro-batches"
RUNS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    LOSS: {
        "beta": 0.01, "entropy_coef": 0.01, "num_iterations": 2, "micro_batch_prompts": 1, "gradient_noise_scale": True,
    },
    "KL in the reward, sampled ahead, a scaled loss": {
        "beta": 0.01, "kl_placement": "reward", "kl": "k1", "off_policy_steps": 1, "precision": "float16",
    },
    "full KL, dynamic sampling, corrections": {
        "beta": 0.01, "kl": "full", "dynamic_sampling": True, "rollout_correction": "token_truncate",
        "off_policy_mask_threshold": 1.0, "top_entropy_quantile": 0.5,
    },
    "KL as a metric, value head, probes": {  # that of the entropy is in Adam's metric, which the first update makes
        "kl_metric": True, "value_head": True, "use_gae": True, "baseline": "value", "scale_rewards": "none",
        "gns_probe_steps": 1, "gns_probe_prompts": 1, "entropy_probe_steps": 2, "num_iterations": 2,
        "entropy_coef": 0.01,
    },
    "tools": {"task": f"{TOOLS}", "max_prompt_length": 64},
    "self-play": {"task": f"{GAME}?style=short&size=16", "baseline": "role", "scale_rewards": "none"},
}  # fmt: skip


def trained(folder: Path, task: str, held_out: EvalConfig, precision: Any = "auto", **options: Any) -> Path:
    """The logs of a run of two steps."""
    sizes = {"prompts_per_step": 2, "num_generations": 4, "max_completion_length": 8, "max_steps": 2}
    trainer = TrainerConfig(**sizes, learning_rate=1e-4, **options)
    given = {"task": task, "model": "tiny", "output_dir": str(folder), "precision": precision}
    return train(RunConfig(**given, trainer=trainer, eval=held_out)).run_dir / "logs"


def metrics_of(folder: Path, task: str = f"{TASK}?size=16", **options: Any) -> dict[str, float]:
    """What two steps log, as the catalogue has it, and without a game's own metrics."""
    logs = trained(folder, task, EvalConfig(at_start=False, at_end=False), **options)
    lines = (logs / "train_log.jsonl").read_text().splitlines()
    steps = {name: value for line in lines for name, value in json.loads(line).items() if name != "step"}
    return {_placed(name): value for name, value in steps.items() if not name.startswith("games/")}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    folder = tmp_path_factory.mktemp("runs")
    logged = {name: metrics_of(folder, **options) for name, options in RUNS.items()}
    with (
        judging(lambda asked: asked.grade(5 if len(asked.texts) == 1 else "A")) as server,
        MonkeyPatch.context() as patch,
    ):
        for name, value in (("JUDGE_URL", server.url), ("NO_PROXY", "127.0.0.1"), ("GRPO_CACHE_DIR", str(folder))):
            patch.setenv(name, value)
        logged["a judge"] = metrics_of(folder, task=f"{JUDGED}?size=16")
    return logged


def test_runs_log_what_the_catalogue_names_and_nothing_else(logged: dict[str, dict[str, float]]) -> None:
    known = {metric.name for metric in CATALOGUE}
    for run, metrics in logged.items():
        assert set(metrics) <= known, f"{run}: not in grpo_core/training/catalogue.py"
    assert set().union(*logged.values()) == known, "the catalogue names what none of these runs logs"


def test_the_catalogue_is_complete_in_itself() -> None:
    assert max(Counter(metric.name for metric in CATALOGUE).values()) == 1
    assert {metric.section for metric in CATALOGUE} == set(SECTIONS)
    assert not NOT_KEPT.keys() & ({metric.name for metric in CATALOGUE} | {each.alias for each in ALIASES})
    for metric in CATALOGUE:
        assert metric.formula
        assert bool(metric.healthy) == metric.deterministic, f"{metric.name}: what depends on the machine has no range"
        assert owner_of(metric.name) == "grpo-core"
    assert [owner_of(name) for name in ("eval/x/solved_rate", "execution/success_rate")] == ["grpo-core", ""]


def test_equal_runs_differ_only_in_what_is_not_deterministic(
    logged: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    again = metrics_of(tmp_path, **RUNS[LOSS])
    fixed = [metric.name for metric in CATALOGUE if metric.deterministic and metric.name in again]
    assert {name: again[name] for name in fixed} == {name: logged[LOSS][name] for name in fixed}


def test_on_policy_metrics_say_so(logged: dict[str, dict[str, float]]) -> None:
    # One update per batch: pi is pi_old, to the bit. Anything else is a bug.
    metrics = logged["the defaults"]
    assert [metrics[f"ratio_{name}"] for name in ("mean", "std", "median", "max")] == [1, 0, 1, 1]
    assert [metrics[f"clip_ratio/{name}"] for name in ("low", "high", "region")] == [0, 0, 0]
    assert metrics["ess"] == pytest.approx(1)
    assert metrics["ratio_outliers"] == metrics["ratio_clamped"] == 0


THINKING = {"eval/NAME/think_rate", "eval/NAME/think_length"}
"""Only where a completion thinks, as those of the embedded model do not."""


def test_evaluations_log_what_the_catalogue_names_and_nothing_else(tmp_path: Path) -> None:
    logs = trained(tmp_path, f"{TASK}?size=16&min_difficulty=1", EvalConfig(size=8, n=2, temperature=1.0))
    lines = (logs / "evaluations.jsonl").read_text().splitlines()
    start, end = (json.loads(line) for line in lines)
    assert (start["step"], start["phase"], end["step"], end["phase"]) == (0, "initial", 2, "final")
    logged = {_placed(name) for name in end if name not in ("step", "phase")}
    known = {metric.name for metric in EVALUATIONS}
    # The interval of X is X_ci_low and X_ci_high, in the catalogue once for all; of what is inside, ci_low and ci_high.
    intervals = {name for name in logged - known if re.search(r"(_|\w/)ci_(low|high)$", name)}
    assert logged - intervals == known - THINKING
    assert {f"eval/NAME/{name}_ci_low" for name in ("delta", "pass@K", "valid_rate")} <= intervals
    assert "eval/NAME/parts/FUNCTION/ci_high" in intervals
    assert not {name for name in start if "delta" in name}, "the start is compared with nothing"


PLACES = {
    f"{TASK}|{GAME}|apology.apology|shop_tasks.shop": "NAME",
    r"/(part|part_correlation)/\w+$": r"/\1/FUNCTION",
    r"/parts/\w+/": "/parts/FUNCTION/",
    r"/by_difficulty/[^/]+/": "/by_difficulty/LEVEL/",
    r"/pass@\d+": "/pass@K",
}


def _placed(name: str) -> str:
    """A logged name as the catalogue has it."""
    for found, place in PLACES.items():
        name = re.sub(found, place, name)
    return name
