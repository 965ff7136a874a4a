from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from grpo_core.policy.fresh import byte_tokenizer, fresh_model, learned_tokenizer
from grpo_core.training.examples import dataset_of, examples_of, texts_of, within
from grpo_sdk import Row, Task, UserError, reward
from grpo_sdk.plugins.task_objects import name_tasks

ADD = "math.arithmetic?size=20&seed=1"
OTHER = "math.arithmetic?size=20&seed=2"


@reward()
def same(answer: str, row: Row) -> float:
    return float(answer == row.gold)


HERE = Task("here", lambda config: [Row(id="a", gold="b")], lambda row: "a:", lambda text: text, (same,), row=Row)


def test_examples_of_a_mixture_are_in_proportion_for_any_number_of_workers() -> None:
    heard: list[tuple[int, int]] = []
    named = name_tasks([ADD, HERE, (OTHER, 3)])  # the object is made in this process
    alone = examples_of(named.spec, 20)
    beside = examples_of(named.spec, 20, workers=2, progress=lambda what, done, total: heard.append((done, total)))
    assert beside == alone and heard == [(1, 3), (2, 3), (3, 3)], "tasks that are ready are counted"
    golds = [texts_of(example) for example in examples_of(OTHER, 20)]
    assert len(alone) == 20 and sum(texts_of(example) in golds for example in alone) >= 12
    assert [texts_of(example) == ["a:", "b"] for example in alone].count(True) == 4


def test_every_demo_of_a_mixture_is_used_and_the_seed_says_in_which_order() -> None:
    def texts(wanted: int, seed: int = 0, task: str = f"{ADD},math.arithmetic?size=4&seed=2") -> list[list[str]]:
        return [texts_of(example) for example in examples_of(task, wanted, seed=seed)]

    demos = {tuple(text) for text in texts(20, task=ADD)}
    assert len(demos) == 20 and demos < {tuple(text) for text in texts(40)}, "the shorter one is repeated"
    assert texts(40) == texts(40) != texts(40, seed=1)
    assert texts(20, seed=1, task=ADD) != texts(20, task=ADD), "the head of a file may be its easy end"
    assert len(texts(100, task=ADD)) == 20


def test_examples_beyond_the_context_are_left_out() -> None:
    dataset = dataset_of(examples_of(ADD, 20), byte_tokenizer(), lambda *_: None)
    lengths = sorted(len(ids) for ids in dataset["input_ids"])
    assert within(dataset, None) is dataset is within(dataset, lengths[-1])
    kept = within(dataset, lengths[10])
    assert sorted(len(ids) for ids in kept["input_ids"]) == [each for each in lengths if each <= lengths[10]]
    with pytest.raises(UserError, match=f"the shortest example has {lengths[0]} tokens"):
        within(dataset, lengths[0] - 1)


def test_a_fault_in_a_worker_is_the_same_line(tmp_path: Path) -> None:
    missing = f"math.arithmetic?size=4,chess.policy?path={tmp_path}/none.jsonl"
    with pytest.raises(UserError) as alone:
        examples_of(missing, 4)
    with pytest.raises(UserError) as beside:
        examples_of(missing, 4, workers=2)
    assert str(beside.value) == str(alone.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside TRL and datasets
@pytest.mark.parametrize("tokenizer", [byte_tokenizer(), learned_tokenizer(["a: b", "1 + 2 = 3", "3 + 45 ="], 280)])
def test_tokens_and_labels_are_those_that_trl_makes(tokenizer: Any, tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    examples = [
        *examples_of(ADD, 12),
        {"prompt": "1 +", "completion": " 2 = 3<|end|>"},
        {"prompt": "", "completion": "b"},
    ]
    ours = dataset_of(examples, tokenizer, lambda *progress: None)
    model, _ = fresh_model("tiny", 0, tokenizer)
    settings = SFTConfig(output_dir=str(tmp_path), max_length=None, use_cpu=True, report_to="none")
    theirs = SFTTrainer(
        model, processing_class=tokenizer, train_dataset=Dataset.from_list(examples), args=settings
    ).train_dataset
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine["input_ids"]) == list(other["input_ids"])
        assert list(mine["labels"]) == list(other["labels"])


def test_chat_messages_are_left_to_trl() -> None:
    example = {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}
    assert dataset_of([example], byte_tokenizer(), lambda *progress: None).column_names == ["prompt", "completion"]


def test_a_worker_that_ends_is_told_with_what_to_do(tmp_path: Path) -> None:
    lines = ["import os", "from grpo_sdk import Row, Task, reward", "@reward()", "def one(text): return 1.0"]
    task = "t = Task('t', lambda config: os._exit(1), lambda row: 'a', lambda text: text, (one,), row=Row)"
    (tmp_path / "dying.py").write_text("\n".join([*lines, task]))
    with pytest.raises(UserError, match="workers=2: a process that made examples ended"):
        examples_of(f"{ADD},{tmp_path / 'dying.py'}:t", 4, workers=2)
