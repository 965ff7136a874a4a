"""Tasksets of verifiers itself; tests/test_foreign_tasks.py runs this in an environment that has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("verifiers")

from grpo_sdk import Scorer, UserError, load_task

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of tasksets that can be imported."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path


def test_tasks_are_rows_with_their_prompts_and_golds() -> None:
    task = load_task("verifiers.adding_numbers?split_by=none")
    row = task.rows()[4]
    assert (row.id, row.gold) == ("train-4", "5")
    assert task.prompt(row) == ({"role": "system", "content": "Be terse."}, {"role": "user", "content": "4+1="})


def test_rewards_have_their_weights_and_metrics_are_recorded() -> None:
    task = load_task("verifiers.adding_numbers?split_by=none")
    assert {spec.name: spec.weight for spec in task.rewards} == {"correct": 0.8, "short": 0.2, "length": 0.0}
    assert "metrics that need a runtime (files)" in task.conditions["not used"]
    score = task.score("5", task.rows()[4])
    assert score.solved and score.value == 1.0 and score.parts["length"] == 1.0
    assert task.score("6", task.rows()[4]).value == pytest.approx(0.2)


def test_the_split_may_be_the_tasksets() -> None:
    rows = load_task("verifiers.adding_numbers?split_by=part&split=test&args=count:3").rows()
    assert [row.id for row in rows] == ["test-0", "test-1", "test-2"]


def test_what_is_no_verdict_abstains_with_its_reason() -> None:
    task = load_task("verifiers.adding_numbers?split_by=none")
    reasons = {
        "raise": "RuntimeError: no luck",
        "nan": "correct is nan, which is no verdict",
        "none": "TypeError",
        "big": "7 is above its maximum 1; state it: ?maximum=7",
        "dict": "scored correct, other of one completion and not of another",
    }
    with Scorer(task, workers=1) as scorer:
        scores = scorer.score([*reasons, "5"], [task.rows()[4]] * (len(reasons) + 1))
    assert scores[-1].solved
    for score, (text, reason) in zip(scores, reasons.items(), strict=False):
        assert score.value is None and reason in score.why, text


REFUSED = {
    "needs_runtime": (
        "    @vf.reward\n    async def ran(self, trace, runtime) -> float:\n        return 1.0",
        "its reward ran needs a runtime",
    ),
    "no_reward": ("    pass", "it has no @vf.reward"),
    "has_setup": (
        "    async def setup(self, trace, runtime):\n        pass\n"
        "    @vf.reward\n    async def ok(self, trace) -> float:\n        return 1.0",
        "Own.setup() needs a runtime",
    ),
    "in_container": ("    NEEDS_CONTAINER = True", "needs a container"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_completion_does_not_have_is_refused_by_name(site: Path, name: str) -> None:
    body, message = REFUSED[name]
    (site / f"{name}.py").write_text(
        f"import verifiers.v1 as vf\n\nclass Own(vf.Task[vf.TaskData]):\n{body}\n\n"
        "class Tasks(vf.Taskset[Own, vf.TasksetConfig]):\n    def load(self):\n"
        "        yield Own(vf.TaskData(prompt='say yes'), self.config.task)\n\n__all__ = ['Tasks']\n"
    )
    with pytest.raises(UserError) as caught:
        load_task(f"verifiers.{name}")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_environment_of_its_own_is_refused(site: Path) -> None:
    source = (HERE / "adding_numbers.py").read_text()
    own = "class Own(vf.Env[vf.EnvConfig]):\n    async def run(self, task, agents):\n        pass\n\n__all__ = ['Own', "
    (site / "own_env.py").write_text(source.replace("__all__ = [", own))
    with pytest.raises(UserError, match="taskset own_env has env of its own"):
        load_task("verifiers.own_env")


@pytest.mark.parametrize(("spec", "message"), [
    ("adding_numbers?args=cuont:3", "no field 'cuont'. Did you mean 'count'?"),
    ("adding_numbers?args=count:x", "count: Input should be a valid integer"),
    ("adding_numbers?args=part:dev", "part: Input should be 'train', 'validation' or 'test'"),
    ("json", "the package json has no taskset that can be used"),
    ("nowhere", "no taskset 'nowhere' is installed"),
])  # fmt: skip
def test_mistakes_are_named(spec: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_task(f"verifiers.{spec}")
    assert message in str(caught.value)
