import numpy as np
import pytest
import torch
from small_policies import model, policy_of

from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.results import Certainty
from grpo_core.evaluation.surprisal import certainty
from grpo_core.policy.fresh import byte_tokenizer
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling

PROMPTS = [(1, 2, 3), (4,), (5, 6), (1, 2, 3)]
COMPLETIONS = [(7, 8), (9, 10, 11, 12), (3,), (2, 2, 2)]


def test_it_is_the_log_softmax_of_the_models_own_logits() -> None:
    network = model(0)
    found = certainty(policy_of(network), PROMPTS, COMPLETIONS)
    for prompt, completion, got in zip(PROMPTS, COMPLETIONS, found, strict=True):
        with torch.no_grad():
            logits = network(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1].double()
        logp = logits.log_softmax(-1)
        surprise = -logp[torch.arange(len(completion)), torch.tensor(completion)].numpy()
        entropy = -(logp.exp() * logp).sum(-1).numpy()
        for values, statistics in ((surprise, got.surprisal), (entropy, got.entropy)):
            assert statistics.mean == pytest.approx(values.mean(), rel=1e-9)
            assert statistics.std == pytest.approx(values.std(), rel=1e-9, abs=1e-12)
            assert statistics.max == pytest.approx(values.max(), rel=1e-9)
            assert statistics.p95 == pytest.approx(np.percentile(values, 95), rel=1e-9)


@pytest.mark.parametrize("limits", [{"rows_at_once": 1}, {"tokens_at_once": 10}])
def test_micro_batches_change_nothing(limits: dict[str, int]) -> None:
    policy = policy_of(model(0))
    whole, cut = (certainty(policy, PROMPTS, COMPLETIONS, **options) for options in ({}, limits))
    np.testing.assert_allclose(np.array(cut), np.array(whole), rtol=1e-9)


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_an_engine_of_this_process_measures_the_same_while_it_samples(temperature: float) -> None:
    network = model(0)
    engine = NativeEngine(network, byte_tokenizer())
    requests = [Request(prompt, SampleKey(0, 0, str(row), 0)) for row, prompt in enumerate(PROMPTS)]
    sampling = Sampling(temperature, max_completion_length=20, certainty=True)
    completions = [completion for _, completion in sorted(engine.generate(requests, sampling))]
    expected = certainty(policy_of(network), PROMPTS, [completion.token_ids for completion in completions])
    measured = [Certainty.of(completion.certainties) for completion in completions]
    np.testing.assert_allclose(np.array(measured), np.array(expected), rtol=1e-9, atol=1e-12)
