"""slime's hooks without slime; tests/test_peers.py runs them in slime itself."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import SUMS, WORDS, AnswerLaws, Played, rows_of, sum_row

from grpo_sdk.errors import DataError, UnscoredError
from grpo_sdk.interop import slime
from grpo_sdk.interop.slime import custom_rm, post_process_rewards


@pytest.fixture
def adapter() -> Any:
    return slime


def arguments(**changes: Any) -> Any:
    usual = {
        "group_rm": False, "reward_key": None, "advantage_estimator": "grpo", "rewards_normalization": True,
        "grpo_std_normalization": True,
        "custom_reward_post_process_path": "grpo_sdk.interop.slime.post_process_rewards",
    }  # fmt: skip
    return SimpleNamespace(**usual | changes)


class Sample(SimpleNamespace):
    """slime's Sample, as far as a reward uses it."""

    def get_reward_value(self, args: Any) -> Any:
        return self.reward if not args.reward_key else self.reward[args.reward_key]


def sample(response: str, spec: str = SUMS, group: int = 0, row: str = "") -> Sample:
    known = {"label": row or rows_of(spec)[2], "metadata": {"task": spec}}
    return Sample(response=response, group_index=group, remove_sample=False, **known)


def rewarded(args: Any, *samples: Sample) -> list[Any]:
    rewards = [asyncio.run(custom_rm(args, each)) for each in samples]
    for each, reward in zip(samples, rewards, strict=True):
        each.reward = reward
    return rewards


class TestSlime(AnswerLaws):
    trainer = "slime"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        made = sample(f"{texts[0]}<|im_end|>", spec, row=row)
        (reward,) = rewarded(arguments(), made)
        why = made.metadata.pop("unscored", "")
        assert made.metadata.pop("task") == spec and made.remove_sample == math.isnan(reward) == bool(why)
        return Played(None if why else reward, made.metadata, why)


def test_a_reward_key_gets_a_mapping_of_all_parts() -> None:
    (reward,) = rewarded(arguments(reward_key="score"), sample("5"))
    assert reward == {"score": 0.0, "solved": 0.0, "valid": 1.0, "right": 0.0, "without_torch": 0.0}


def test_a_sample_that_cannot_be_scored_is_left_out_of_its_group() -> None:
    args = arguments()
    samples = [sample("4"), sample("404"), sample("5"), sample("404", group=1), sample("4", group=1)]
    rewarded(args, *samples)
    logged, trained = post_process_rewards(args, samples)
    assert logged == pytest.approx([2.0, 4 / 3, 0.0, 4 / 3, 2.0])  # the mean of 2, 0 and 2 is 4/3
    # The group of 2 and 0: mean 1, standard deviation sqrt(2). The other has one that was scored: 0.
    assert trained == pytest.approx([2**-0.5, 0.0, -(2**-0.5), 0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize(("changes", "trained"), [
    ({"grpo_std_normalization": False}, [1.0, -1.0]),
    ({"advantage_estimator": "reinforce_plus_plus_baseline"}, [1.0, -1.0]),
    ({"rewards_normalization": False}, [2.0, 0.0]),
    ({"advantage_estimator": "ppo"}, [2.0, 0.0]),
])  # fmt: skip
def test_rewards_are_normalised_as_the_arguments_say(changes: dict[str, Any], trained: list[float]) -> None:
    samples = [sample("4"), sample("5")]
    rewarded(arguments(), *samples)
    assert post_process_rewards(arguments(**changes), samples)[1] == trained


def test_without_the_post_process_what_cannot_be_scored_is_an_error() -> None:
    with pytest.raises(UnscoredError, match=r"LookupError.*--custom-reward-post-process-path grpo_sdk"):
        rewarded(arguments(custom_reward_post_process_path=None), sample("404"))


def test_group_rewards_compare_the_samples_of_a_prompt() -> None:
    samples = [sample("aaa", WORDS), sample("b", WORDS), sample("1", WORDS)]
    # 0.5 for an a, 0.25 for the shortest; -1 where there is no word
    assert asyncio.run(custom_rm(arguments(group_rm=True), samples)) == [0.5, 0.25, -1.0]
    assert samples[1].metadata["shortest"] == 1.0
    several = [sample("4"), sample("5")]  # of a --custom-generate-function-path
    assert asyncio.run(custom_rm(arguments(), several)) == [2.0, 0.0]


def test_a_sample_without_its_task_is_refused() -> None:
    with pytest.raises(DataError, match=r"no metadata\.task.*grpo export slime"):
        rewarded(arguments(), Sample(response="4", label=sum_row(), metadata={}))
