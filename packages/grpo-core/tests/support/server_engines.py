"""A tiny model behind an engine of a server, and its requests."""

from typing import Any

from peft import LoraConfig, get_peft_model
from vllm_server import FakeVLLM

from grpo_core.policy.fresh import fresh_model
from grpo_sdk.endpoints.base import Engine, Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

MODEL, TOKENIZER = fresh_model("tiny", 0)


def ids(text: str) -> list[int]:
    encoded: list[int] = TOKENIZER(text)["input_ids"]
    return encoded


def request(text: str = "1 + 1 =", sample: int = 0, **options: Any) -> Request:
    return Request(tuple(ids(text)), SampleKey(7, 3, "row", sample), **options)


def run(engine: Engine, requests: list[Request], sampling: Sampling | None = None) -> list[Completion]:
    found = dict(engine.generate(requests, sampling or Sampling(max_completion_length=8)))
    return [found[index] for index in range(len(requests))]


def sent_versions(fake: FakeVLLM) -> list[int]:
    """Versions of the weights that a server was sent whole."""
    given = [str(body["new_version"]) for path, body in fake.seen if path == "/update_weight_version"]
    return [int(version.rpartition("-")[2]) for version in given if not version.endswith("-begun")]


def adapted() -> Any:
    return get_peft_model(fresh_model("tiny", 1)[0], LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
