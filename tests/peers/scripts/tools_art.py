import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import art
from art.preprocessing.tokenize import tokenize_trajectory_groups
from episodes import END, WITHOUT_TOOLS, bytes_tokenizer, episode, played, runs
from report import report

from grpo_sdk.interop.art import rollout

known = played()
tokenizer = bytes_tokenizer(WITHOUT_TOOLS)
waiting, requests = [], []


class Endpoint(BaseHTTPRequestHandler):
    """Says the next turn, with its tokens as vLLM sends them to ART."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        requests.append(request)
        text = waiting.pop(0)
        told = {"logprob": -0.5, "bytes": None, "top_logprobs": []}
        tokens = [{"token": f"token_id:{number}", **told} for number in tokenizer.encode(text + END)]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": tokens}}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"], "choices": [choice]}
        sent = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *line):
        pass


async def play(model, each):
    """What ART makes of an episode: its trajectory, and the sequence that it trains."""
    waiting[:], requests[:] = each["texts"], []
    one = rollout(model, known["spec"], each["row"])
    (group,) = await art.gather_trajectory_groups([art.TrajectoryGroup([one])], pbar_desc=None, max_exceptions=1)
    if group.exceptions:
        assert not group.trajectories and "UnscoredError" in group.exceptions[0].type, group.exceptions
        return episode(None, why=group.exceptions[0].message)
    (trajectory,) = group.trajectories
    assert '"name": "look_up"' in requests[0]["messages"][0]["content"] and "tools" not in requests[0]
    (sequence,) = tokenize_trajectory_groups(tokenizer, [group], False, False, drop_zero_advantage_trajectories=False)
    trained, (_, *told) = runs(tokenizer, sequence.token_ids, sequence.assistant_mask)
    parts = {
        name: float(value)
        for name, value in trajectory.metrics.items()
        if name not in ("duration", "completion_tokens")
    }
    return episode(trajectory.reward, parts, [each for each in told if each.strip()], trained=trained)


async def main():
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        names = {"name": "policy", "project": "tools", "inference_model_name": "policy"}
        model = art.Model(**names, inference_base_url=url, inference_api_key="none")
        answers = [await play(model, each) for each in known["episodes"]]
        server.shutdown()
    return answers


report("openpipe-art", "gather_trajectory_groups, Model.openai_client, tokenize_trajectory_groups", asyncio.run(main()))
