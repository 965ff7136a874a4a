import os
import sys
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from report import answer, batch, commit_of, report

source = os.environ["NEMO_GYM_SOURCE"]
sys.path.insert(0, source)

from nemo_gym.server_utils import ServerClient  # noqa: E402 - of the checkout

from grpo_sdk.interop.nemo_gym import TaskResourcesServer, TaskServerConfig  # noqa: E402


def client_of(spec):
    """A client of the web server that NeMo-Gym makes of a resources server."""
    config = TaskServerConfig(host="127.0.0.1", port=8080, entrypoint="app.py", name="grpo", task=spec)
    server = TaskResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


def response_of(text):
    """A response of a model with one message."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    known = {"id": "r", "created_at": 0, "model": "m", "object": "response"}
    return {**known, "output": [message], "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}


def score(client, sample):
    """What `/verify` answers to a completion."""
    text = sample["completion"].encode(errors="replace").decode()  # no JSON of theirs has a lone surrogate
    body = {"responses_create_params": {"input": "…"}, "response": response_of(text), "row": sample["row"]}
    verified = client.post("/verify", json=body)
    assert verified.status_code == 200, verified.text
    result = verified.json()
    if result["mask_sample"]:
        assert result["_ng_failure_class"] and result["instance_config"]["mask_sample"]
        return answer(None, unscored="`mask_sample`, and a class of failure: out of training and averages")
    parts = {**result["reward_components"], "solved": result["solved"], "valid": result["valid"]}
    return answer(result["reward"], parts)


clients = {spec: client_of(spec) for spec in {sample["task"] for sample in batch()}}
assert all(client.get("/reverify_mode").json() == "stateless" for client in clients.values())
answers = [score(clients[sample["task"]], sample) for sample in batch()]
report(f"nemo-gym {commit_of(source)}", "SimpleResourcesServer.setup_webserver, /verify", answers)
