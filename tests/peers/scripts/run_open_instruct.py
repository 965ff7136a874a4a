import asyncio
import json
import os
import sys

from report import answer, batch, commit_of, report

source = os.environ["OPEN_INSTRUCT_SOURCE"]
sys.path.insert(0, source)

from open_instruct.ground_truth_utils import VerifierFunction, apply_verifiable_reward  # noqa: E402 - of the checkout

from grpo_sdk.errors import UnscoredError  # noqa: E402
from grpo_sdk.interop.open_instruct import VERIFIER, TaskVerifier  # noqa: E402

assert TaskVerifier in VerifierFunction.__subclasses__()  # where open-instruct looks for verifiers
verifiers = {VERIFIER: TaskVerifier()}


async def score(sample):
    """What `apply_verifiable_reward` gives for a completion."""
    label = json.dumps({"task": sample["task"], "row": sample["row"]})
    try:
        rewards, parts = await apply_verifiable_reward(
            verifiers, [[0]], [sample["completion"]], [[label]], [[VERIFIER]]
        )
    except UnscoredError:
        return answer(None, unscored="raises: the run ends")
    assert parts == [{VERIFIER: rewards[0]}]
    return answer(rewards[0])


async def main():
    return [await score(sample) for sample in batch()]


report(f"open-instruct {commit_of(source)}", "apply_verifiable_reward", asyncio.run(main()))
