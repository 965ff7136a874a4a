from fastapi.testclient import TestClient
from openenv.core.env_server import create_app
from report import answer, batch, report

from grpo_sdk.interop.openenv import TaskAction, TaskEnvironment, TaskObservation


def score(samples):
    """What OpenEnv's server answers over a WebSocket to the completions of a task."""
    app = create_app(lambda: TaskEnvironment(samples[0]["task"]), TaskAction, TaskObservation)
    with TestClient(app) as client, client.websocket_connect("/ws") as socket:
        for each in samples:
            socket.send_json({"type": "reset", "data": {"row": each["row"]}})
            assert not socket.receive_json()["data"]["done"]
            socket.send_json({"type": "step", "data": {"text": each["completion"]}})
            result = socket.receive_json()["data"]
            assert result.get("done"), result
            seen = result["observation"]
            if result["reward"] is None:
                assert seen["metadata"]["abstained"]
                yield answer(None, unscored="reward None; `metadata` says why")
            else:
                parts = {**seen["parts"], "solved": float(seen["solved"]), "valid": float(seen["valid"])}
                yield answer(result["reward"], parts)


by_task = {}
for sample in batch():
    by_task.setdefault(sample["task"], []).append(sample)
report("openenv", "create_app, /ws", [each for samples in by_task.values() for each in score(samples)])
