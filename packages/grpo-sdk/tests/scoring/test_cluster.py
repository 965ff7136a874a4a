import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scoring_tasks
from ray_clusters import ray_cluster
from waiting import eventually

from grpo_core.config import load_config
from grpo_sdk import Row, Scorer, load_task
from grpo_sdk.errors import InfrastructureError, UserError
from grpo_sdk.killable.ray import RayCluster, RayPool
from grpo_sdk.killable.ray.cluster import Node
from grpo_sdk.scoring import cluster as module
from grpo_sdk.scoring.cluster import use_nodes

SPEC = f"{Path(scoring_tasks.__file__)}:sums"


# Without a cluster


def test_an_unreachable_cluster_is_one_line_before_anything_is_loaded() -> None:
    pytest.importorskip("ray")
    with pytest.raises(InfrastructureError) as caught:
        use_nodes(RayCluster("127.0.0.1:1"), [load_task(SPEC)])
    assert str(caught.value).startswith("scoring.executor=ray: no Ray cluster answers at 127.0.0.1:1: ")
    assert "\n" not in str(caught.value)


def test_ray_is_imported_by_a_process_of_its_own_alone() -> None:
    program = "import sys, grpo_sdk.scoring.cluster, grpo_sdk.killable.ray.pool; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_settings_that_have_no_effect_alone_or_need_ray_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"scoring\.ray_address=head:6379 is of use with scoring\.executor=ray only"):
        load_config({"scoring.ray_address": "head:6379"}, environ={}, dotenv_path=None)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs Ray, here and on each node: pip install 'grpo-sdk\[ray\]'"):
        module.ray_cluster()


def test_conditions_that_differ_name_their_nodes() -> None:
    nodes = [Node(name, 2) for name in "abcdef"]
    conditions = [{"sandbox": "L3", "same": "x"}, *[{"sandbox": "L2", "same": "x"}] * 5]
    assert module._merged(nodes, conditions) == {"sandbox": "L3 (on a); L2 (on b, c, d, e and 1 more)", "same": "x"}


def test_a_task_file_is_stored_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_CACHE_DIR", str(tmp_path))
    task = load_task(f"{SPEC}?size=3")
    made = module._node_task(module._portable(task, (task.spec,)))
    assert (made.name, made.config.model_dump()) == (task.name, task.config.model_dump())
    (stored,) = tmp_path.rglob("*.py")
    stored.write_text("damaged")
    assert module._stored(stored.name, Path(scoring_tasks.__file__).read_bytes()) == stored
    assert "damaged" not in stored.read_text()


# With one


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    with ray_cluster(2, 2, 2) as cluster:
        yield cluster


@pytest.mark.slow
def test_the_file_goes_along_and_secrets_stay(three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS_API_KEY", "secret")
    monkeypatch.setenv("GRPO_SANDBOX_LEVEL", "L2")
    file = tmp_path / "told.py"
    shutil.copy(Path(__file__).parent / "programs" / "told.py", file)
    task = load_task(f"{file}:told")
    cluster = module.ray_cluster(three.address)
    (choice,) = use_nodes(cluster, [task])
    assert (choice.value, task.conditions) == ("3 nodes of a Ray cluster", {"sandbox": "L2"})
    with Scorer(task, workers=1, cluster=cluster) as scorer:
        file.unlink()
        secret, level = scorer.score(["OURS_API_KEY", "GRPO_SANDBOX_LEVEL"], [Row(id="0")] * 2)
    assert "none" in secret.why and "secret" not in secret.why
    assert "L2" in level.why and str(tmp_path) not in level.why.replace(os.path.expanduser("~"), "")


@pytest.mark.slow
def test_a_node_that_lacks_a_version_is_named(three: Any) -> None:
    cluster = RayCluster(three.address, versions={"grpo-core": "9.9", "no-such-package": "1"})
    with RayPool("scoring_tasks:make", cluster=cluster) as pool, pytest.raises(InfrastructureError) as caught:
        pool.warm()
    assert "of the Ray cluster cannot score: grpo-core is 0." in str(caught.value)
    assert "there and 9.9 here; no-such-package 1 is not installed there" in str(caught.value)


@pytest.mark.slow
def test_a_node_lost_under_load_costs_no_score(three: Any, capfd: pytest.CaptureFixture[str]) -> None:
    task = load_task(f"{SPEC}")
    row = task.rows()[2]
    with Scorer(task, workers=2, cluster=RayCluster(three.address)) as scorer:
        scorer.warm()
        futures = [scorer.submit(str(index % 8), row) for index in range(6000)]
        assert eventually(lambda: sum(future.done() for future in futures) >= 1000, 60)
        three.remove_node(next(iter(three.worker_nodes)), allow_graceful=False)
        scores = [future.result(120) for future in futures]
        assert len(scorer._pool.nodes()) == 2
        # A node that joins is used, too.
        three.add_node(num_cpus=2)
        assert eventually(lambda: len(scorer._pool.nodes()) == 3, 60)
        assert scorer.score(["4"], [row])[0].value == 2.0
    assert [score.value for score in scores] == [2.0 if index % 8 == 4 else 0.0 for index in range(6000)]
    assert "of the Ray cluster was lost: " in capfd.readouterr().err


@pytest.mark.slow
def test_without_a_node_completions_abstain() -> None:
    with (
        ray_cluster(0, 1) as cluster,
        Scorer(SPEC, workers=1, timeout_s=30, cluster=RayCluster(cluster.address)) as scorer,
    ):
        row = load_task(SPEC).rows()[2]
        assert scorer.score(["4"], [row])[0].value == 2.0
        futures = [scorer.submit("spin", row), scorer.submit("4", row)]
        killer = threading.Timer(0.5, cluster.remove_node, (next(iter(cluster.worker_nodes)), False))
        killer.start()
        scores = [future.result(120) for future in futures]
        killer.join()
    assert [(score.value, score.fault) for score in scores] == [(None, "infrastructure")] * 2
    assert "no node of the Ray cluster is left" in scores[0].why
