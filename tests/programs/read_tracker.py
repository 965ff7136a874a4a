"""What a tracker's own API has of the steps of `reward`: JSON of run -> steps, by `read_tracker.py TRACKER FOLDER`."""

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path


def mlflow(_: Path) -> Iterator[tuple[str, list[int]]]:
    """Read the server or file of MLFLOW_TRACKING_URI."""
    from mlflow import MlflowClient

    client = MlflowClient()
    for run in client.search_runs([each.experiment_id for each in client.search_experiments()]):
        yield run.info.run_name, [each.step for each in client.get_metric_history(run.info.run_id, "reward")]


def trackio(_: Path) -> Iterator[tuple[str, list[int]]]:
    """Read TRACKIO_DIR."""
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    for run in Api().runs("p"):
        logs = SQLiteStorage.get_logs("p", run.name, run_id=run.id)
        yield run.name, [line["step"] for line in logs if "reward" in line]


def aim(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Read the repository in the working folder; its values are not in order."""
    from aim import Repo

    for metric in Repo(".").query_metrics("metric.name == 'reward'").iter():
        yield metric.run.name, sorted(round(8 * value) for value in metric.values.sparse_list()[1])


def comet_ml(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Read the archives that `comet upload` takes; one of a process that was killed is empty."""
    for path in sorted((folder / "logs" / "comet").glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            if "messages.json" in archive.namelist():
                lines = [json.loads(line)["payload"] for line in archive.read("messages.json").splitlines()]
                metrics = [line["metric"] for line in lines if line.get("metric")]
                yield path.name, [each["metricValue"] * 8 for each in metrics if each["metricName"] == "reward"]


def clearml(_: Path) -> Iterator[tuple[str, list[int]]]:
    """Read the archives that `Task.import_offline_session` takes."""
    for path in sorted(Path.home().rglob("offline-*.zip")):
        with zipfile.ZipFile(path) as archive:
            events = [event for line in archive.read("metrics.jsonl").splitlines() for event in json.loads(line)]
            yield path.name, [event["iter"] for event in events if event.get("metric") == "reward"]


print(json.dumps(sorted(globals()[sys.argv[1]](Path(sys.argv[2])))))
