"""TRL's own trainer with a random model, for tests."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_core.engines.native import NativeEngine
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.endpoints.base import Arrivals, Request, Sampling
from grpo_sdk.endpoints.completion import Completion

CONFIG = {
    "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 24, "max_steps": 2,
    "logging_steps": 1, "learning_rate": 1e-4, "use_cpu": True, "bf16": False, "report_to": [],
    "save_strategy": "no", "disable_tqdm": True, "seed": 0,
}  # fmt: skip


def save_model(folder: Path) -> None:
    """A model whose chat template knows tools and whose context has room for them."""
    import trl

    model, tokenizer = fresh_model("tiny", seed=0)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    model.config.max_position_embeddings = 4096
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")


def trainer_of(folder: Path, reward_funcs: Any, rows: Any, config: dict[str, Any] | None = None, **options: Any) -> Any:
    """A trainer of the model in `folder`.

    Args:
        folder: What `save_model` got.
        reward_funcs: Reward functions.
        rows: Data set to train on.
        config: Other arguments of `GRPOConfig`.
        **options: Other arguments of `GRPOTrainer`.
    """
    import trl

    args = trl.GRPOConfig(output_dir=str(folder / "out"), **CONFIG | (config or {}))
    model = str(folder / "model")
    return trl.GRPOTrainer(model=model, reward_funcs=list(reward_funcs), train_dataset=rows, args=args, **options)


def rewards_logged(trainer: Any) -> list[dict[str, float]]:
    """What the trainer logged of each step."""
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def written(name: str, **arguments: Any) -> str:
    """A call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Scripted:
    """Completions of a model that calls tools, in place of the random one's: what to say to a prompt."""

    def __init__(self, trainer: Any, say: Callable[[str], str]) -> None:
        self._tokenizer, self._say, self.prompts = trainer.processing_class, say, list[str]()

    def __call__(self, prompt_ids: Any, *arguments: Any, **options: Any) -> tuple[list[list[int]], None]:
        prompts = [self._tokenizer.decode(ids) for ids in prompt_ids]
        self.prompts += prompts
        return [self._tokenizer(f"{self._say(prompt)}<|im_end|>")["input_ids"] for prompt in prompts], None


def let_the_engine_say(monkeypatch: pytest.MonkeyPatch, say: Callable[[str], str]) -> None:
    """Have our engine complete each prompt, as text, by a function in place of the model."""

    def completed(engine: Any, request: Request) -> Completion:
        tokenizer = engine._tokenizer
        text = say(tokenizer.decode(request.prompt_ids))
        ids = (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)
        return Completion(ids, (-0.5,) * len(ids), text, "stop", engine.version)

    def generate(engine: Any, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        return ((index, completed(engine, request)) for index, request in enumerate(requests))

    def generate_arriving(engine: Any, arrivals: Arrivals, sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        while (requests := arrivals.take(wait=True)) is not None:
            yield from ((number, completed(engine, request)) for number, request in requests)

    monkeypatch.setattr(NativeEngine, "generate", generate)
    monkeypatch.setattr(NativeEngine, "generate_arriving", generate_arriving)
