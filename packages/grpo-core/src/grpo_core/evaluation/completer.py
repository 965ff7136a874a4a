"""A model that completes prompts, for what is neither training nor evaluation: a game to watch, an exact policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.surprisal import certainty
from grpo_core.policy.load import load_policy
from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.task.row import Prompt


class Completer:
    """A model in this process: `Completer("tiny")(["57 + 38 ="])` -> `[" 95"]`.

    Args:
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: A PEFT adapter to put on it.
        device: Device of the model.
        precision: Floating-point type of the model's products.
        max_completion_length: Tokens per completion.
        temperature: 0 is greedy.
        stop: Strings that end a completion; the text keeps them.
        seed: Seed of sampling above temperature 0: the n-th call's completions depend on it, n and their place alone.

    Raises:
        UserError: no such model, adapter or device.
    """

    def __init__(
        self,
        model: str,
        *,
        adapter: str | None = None,
        device: str = "auto",
        precision: str = "auto",
        max_completion_length: int = 256,
        temperature: float = 0.0,
        stop: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        self._sampling = Sampling(temperature, max_completion_length=max_completion_length)
        self._policy = load_policy(model, adapter=adapter, device=device, precision=precision)
        self._engine = NativeEngine(self._policy.model.eval(), self._policy.tokenizer)
        self._stop, self._seed, self._calls = stop, seed, count()

    def logprobs(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[float]:
        """Log-probability, in nats, of answering each prompt with exactly this completion and ending it there.

        At temperature 1. A stop string ends a completion by itself; any other ends with the end-of-sequence token.
        """
        tokenizer = self._policy.tokenizer
        end = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        answers = [
            (
                *tokenizer(text, add_special_tokens=False)["input_ids"],
                *(() if text.endswith(self._stop) else end),
            )
            for text in completions
        ]
        encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
        measured = certainty(self._policy, encoded, answers)
        return [-numbers.surprisal.mean * len(answer) for numbers, answer in zip(measured, answers, strict=True)]

    def __call__(self, prompts: Sequence[Prompt]) -> list[str]:
        """The completions, in the order of the prompts.

        Raises:
            UserError: a prompt does not fit the model's context.
        """
        step = next(self._calls)
        encoded = [encode_prompt(self._policy.tokenizer, prompt) for prompt in prompts]
        requests = [
            Request(prompt_ids, SampleKey(self._seed, step, str(place), 0), self._stop)
            for place, prompt_ids in enumerate(encoded)
        ]
        texts = [""] * len(requests)
        with self._policy.precision():
            for index, completion in self._engine.generate(requests, self._sampling):
                texts[index] = completion.text
        return texts
