from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import group_tasks
import judged_tasks
import pytest
from judge_server import judging

from grpo_core.errors import AbstentionLimitError, UserError
from grpo_core.interop.trl import TaskReward, TrlTask, completion_text, dataset, reward_funcs

TASKS = """
import time
from grpo_core import Invalid, Message, Opponent, Row, Task, reward

class Sum(Row):
    a: int
    b: int

def load(config) -> list[Sum]:
    return [Sum(id=f"{a}+{b}", a=a, b=b, gold=str(a + b)) for a in range(1, 4) for b in range(1, 3)]

def text_prompt(row):
    return f"{row.a}+{row.b}="

def chat_prompt(row):
    return [Message(role="user", content=text_prompt(row))]

def prefilled(row):
    return [*chat_prompt(row), Message(role="assistant", content="The sum is")]

def validate(text, row):
    if text == "hang":
        time.sleep(60)
    if text == "crash":
        raise RuntimeError("boom")
    try:
        return int(text)
    except ValueError:
        raise Invalid("no number") from None

@reward(0.25)
def number(answer):
    return 1.0

@reward(0.75)
def exact(answer, row):
    return float(answer == row.a + row.b)

@reward()
def unguessed(answer, predictions):
    return float(str(answer) not in predictions)

both = (number, exact)
add = Task("add", load, text_prompt, validate, both, stop=("\\n",), timeout_s=0.5)
strict = Task("strict", load, text_prompt, validate, both, timeout_s=0.5, on_timeout="fail")
same = Task("same", load, text_prompt, validate, both)
chat = Task("chat", load, chat_prompt, validate, both)
prefill = Task("prefill", load, prefilled, validate, both)
turns = Task("turns", load, text_prompt, validate, both, max_turns=2, respond=lambda text, row, turn: None)
duel = Task("duel", load, text_prompt, validate, (unguessed,), opponent=Opponent(prompt=lambda answer: "guess"))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trl") / "sums.py"
    file.write_text(TASKS)
    return file


@pytest.fixture(scope="module")
def add(path: Path) -> Iterator[TaskReward]:
    (function,) = reward_funcs(f"{path}:add", workers=1, max_abstain_share=1.0)
    yield function
    function.close()


class Log:
    """What TRL gives to every reward function."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self.metrics: dict[str, float] = {}

    def keywords(self) -> dict[str, Any]:
        return {"log_extra": self.columns.__setitem__, "log_metric": self.metrics.__setitem__, "trainer_state": None}


def batch(completions: list[Any], row: dict[str, Any] | None = None, **columns: Any) -> dict[str, Any]:
    """The keywords of TRL 1.16's call: lists of one length, every column of the dataset by name."""
    row = row or {"id": "1+2", "a": 1, "b": 2}
    n = len(completions)
    return {
        "prompts": ["1+2="] * n,
        "completions": completions,
        "completion_ids": [[1]] * n,
        "row": [json.dumps(row)] * n,
        "task": ["sums.add"] * n,
        **columns,
    }


# --- the reward function


def test_one_number_per_completion_in_order(add: TaskReward) -> None:
    # 0.25 for a number, 0.75 more for the right one.
    assert add(**batch(["3", "4", "three"])) == [1.0, 0.25, 0.0]


def test_the_text_of_a_message_is_scored(add: TaskReward) -> None:
    assert add(**batch([[{"role": "assistant", "content": "3"}]])) == [1.0]


def test_what_follows_a_stop_string_is_not_scored(add: TaskReward) -> None:
    assert add(**batch(["3\n4+4=8"])) == [1.0]


def test_a_hang_is_wrong_where_the_task_says_so(path: Path) -> None:
    (function,) = reward_funcs(f"{path}:strict", workers=1, max_abstain_share=0.0)
    log = Log()
    try:
        assert function(**batch(["hang", "3"], task=None), **log.keywords()) == [0.0, 1.0]
    finally:
        function.close()
    assert log.metrics["sums.strict/abstained_rate"] == 0.0 and log.metrics["sums.strict/solved_rate"] == 0.5
    assert log.columns["sums.strict/solved"] == [False, True]


def test_a_hang_and_a_crash_are_none_and_spoil_nothing_else(add: TaskReward) -> None:
    log = Log()
    assert add(**batch(["hang", "3", "crash"]), **log.keywords()) == [None, 1.0, None]
    assert log.metrics["sums.add/abstained_rate"] == pytest.approx(2 / 3)
    assert log.metrics["sums.add/solved_rate"] == 1.0
    assert log.columns["sums.add/solved"] == [None, True, None]
    assert "boom" in log.columns["sums.add/why"][2]


def test_parts_solved_and_valid_are_logged(add: TaskReward) -> None:
    log = Log()
    add(**batch(["3", "4", "three"]), **log.keywords())
    assert log.columns == {
        "sums.add/solved": [True, False, False],
        "sums.add/valid": [True, True, False],
        "sums.add/why": ["", "exact 0 of 1", "invalid: no number"],
        "sums.add/number": [1.0, 1.0, 0.0],
        "sums.add/exact": [1.0, 0.0, 0.0],
    }
    thirds = {"solved_rate": 1 / 3, "valid_rate": 2 / 3, "number": 2 / 3, "exact": 1 / 3, "abstained_rate": 0.0}
    assert log.metrics == pytest.approx({f"sums.add/{name}": value for name, value in thirds.items()})


def test_completions_of_other_tasks_are_left_to_their_own_functions(path: Path) -> None:
    functions = reward_funcs(f"{path}:add,{path}:same", workers=1)
    mixed = batch(["3", "3"], task=["sums.add", "sums.same"])
    assert [function(**mixed) for function in functions] == [[1.0, None], [None, 1.0]]
    log = Log()
    assert functions[0](**batch(["3"], task=["sums.same"]), **log.keywords()) == [None]
    with pytest.warns(UserWarning, match="scores nothing in this batch: its rows are of arithmetic"):
        assert functions[0](**batch(["3"], task=["arithmetic"])) == [None]
    assert functions[0](**batch(["3"], task=["arithmetic"])) == [None], "warned once"
    assert log.columns["sums.add/solved"] == [None]  # the table keeps one value per completion
    assert log.metrics == {}
    for function in functions:
        function.close()


def test_it_pickles(add: TaskReward) -> None:
    copy = pickle.loads(pickle.dumps(add))
    assert copy(**batch(["3"])) == [1.0]
    copy.close()


def test_without_the_column_row_it_says_where_to_get_it(add: TaskReward) -> None:
    columns = batch(["3"])
    del columns["row"]
    with pytest.raises(UserError, match=r"no column 'row'.*interop\.trl\.dataset"):
        add(**columns)
    with pytest.raises(UserError, match="got 1 'row' for 2 completions"):
        add(**batch(["3", "4"], row=None) | {"row": ["{}"]})


def test_too_many_abstentions_stop_the_run_by_name(path: Path) -> None:
    (function,) = reward_funcs(f"{path}:add", workers=1)
    with pytest.raises(AbstentionLimitError, match=r"sums\.add"):
        function(**batch(["crash", "crash", "3"]))
    function.close()


def test_texts_of_completions() -> None:
    assert completion_text("a") == "a"
    for wrong in (None, 5, b"5", ["5"]):
        with pytest.raises(UserError, match="a completion is a text, or a list of one message; got "):
            completion_text(wrong)  # type: ignore[arg-type]
    assert completion_text([{"role": "assistant", "content": None}]) == ""
    assert completion_text([{"role": "assistant", "content": [{"type": "text", "text": "a"}]}]) == "a"
    with pytest.raises(UserError, match="has: assistant, tool"):
        completion_text([{"role": "assistant", "content": ""}, {"role": "tool", "content": "4"}])
    with pytest.raises(UserError, match="moved part of a completion to reasoning_content"):
        completion_text([{"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}])


# --- the dataset


def test_a_row_is_one_json_string_that_reads_back(path: Path, add: TaskReward) -> None:
    rows = dataset(f"{path}:add")
    assert rows.column_names == ["prompt", "row", "task"]
    assert rows["prompt"][:2] == ["1+1=", "1+2="]
    assert [add.task.row_from_json(text) for text in rows["row"]] == add.task.rows()
    assert set(rows["task"]) == {"sums.add"}


def test_golds_earn_everything_through_dataset_and_function(path: Path, add: TaskReward) -> None:
    rows = dataset(f"{path}:add")
    golds = [json.loads(text)["gold"] for text in rows["row"]]
    columns = {"row": rows["row"][:], "task": rows["task"][:]}
    assert add(prompts=rows["prompt"], completions=golds, completion_ids=[], **columns) == [1.0] * 6


def test_messages_stay_messages(path: Path) -> None:
    assert dataset(f"{path}:chat")["prompt"][0] == [{"role": "user", "content": "1+1="}]


def test_a_mixture_has_the_proportion_of_its_weights(path: Path) -> None:
    labels = dataset(f"{path}:add:2,{path}:same:1")["task"][:]
    # 6 + 6 rows, two thirds and one third: 8 and 4; every three in a row hold two and one.
    assert labels.count("sums.add") == 8
    assert [labels[start : start + 3].count("sums.add") for start in range(0, 12, 3)] == [2, 2, 2, 2]


# --- what TRL cannot do


def test_text_and_messages_do_not_mix(path: Path) -> None:
    with pytest.raises(UserError, match=r"sums\.add \(text\), sums\.chat \(messages\)"):
        dataset(f"{path}:add,{path}:chat")


def test_a_prefill_is_refused(path: Path) -> None:
    with pytest.raises(UserError, match="which TRL would close"):
        dataset(f"{path}:prefill")


def test_several_turns_are_refused(path: Path) -> None:
    with pytest.raises(UserError, match="several turns"):
        reward_funcs(f"{path}:turns")
    with pytest.raises(UserError, match="several turns"):
        dataset(f"{path}:turns")


def test_an_opponent_needs_an_endpoint(path: Path) -> None:
    with pytest.raises(UserError, match=r"'base', which a reward function cannot sample from.*opponent_url="):
        reward_funcs(f"{path}:duel")
    (function,) = reward_funcs(f"{path}:duel", workers=1, opponent_url="http://127.0.0.1:9/v1#m")
    function.close()


def test_importing_it_and_scoring_loads_no_torch(path: Path) -> None:
    code = f"""
import sys
from grpo_core.interop.trl import reward_funcs
(function,) = reward_funcs({str(path) + ":add"!r}, workers=1)
assert function(completions=["3"], row=['{{"id": "1+2", "a": 1, "b": 2}}']) == [1.0]
loaded = {{"torch", "transformers", "trl", "datasets"}} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the real trainer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TRL's and accelerate's own warnings are not ours to fail on
@pytest.mark.parametrize("spec", ["{path}:add", "{path}:chat", "{path}:add:2,{path}:same:1"])
def test_trl_trains_two_steps(path: Path, tmp_path: Path, spec: str) -> None:
    trl = pytest.importorskip("trl")
    spec = spec.format(path=path)
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=12,
        num_generations=4,
        max_completion_length=4,
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        loss_type="dr_grpo",
        scale_rewards="none",
        shuffle_dataset=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    functions = reward_funcs(spec, workers=1)
    assert not any(trl.trainer.utils.is_async_callable(function) for function in functions)
    trainer = trl.GRPOTrainer(
        model=str(_tiny_model(tmp_path / "model")),
        reward_funcs=list(functions),
        train_dataset=dataset(spec),
        args=config,
    )
    trainer.train()
    for function in functions:
        function.close()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    for entry in logs:
        assert math.isfinite(entry["loss"])
        assert 0 <= entry["reward"] <= 1
        for function in functions:
            name = function.__name__
            assert 0 <= entry[f"rewards/{name}/mean"] <= 1
            assert entry[f"{name}/abstained_rate"] == 0
            assert 0 <= entry[f"{name}/exact"] <= 1
    if len(functions) == 2:
        # Batches of 3 prompts × 4: two of add, one of same; the reward is the mean over all twelve.
        shares = [2 / 3, 1 / 3]
        means = [logs[0][f"rewards/{function.__name__}/mean"] for function in functions]
        expected = sum(share * mean for share, mean in zip(shares, means, strict=True))
        assert logs[0]["reward"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("eval_size", [None, 1])
def test_trl_evaluates_a_task_with_group_rewards(tmp_path: Path, eval_size: int | None) -> None:
    trl = pytest.importorskip("trl")
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=2,
        num_generations_eval=eval_size,
        max_completion_length=2,
        max_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    spec = f"{Path(group_tasks.__file__)}:words"
    with TrlTask(spec, workers=1, num_generations=2, num_generations_eval=eval_size, max_abstain_share=1.0) as task:
        trainer = trl.GRPOTrainer(
            model=str(_tiny_model(tmp_path / "model")),
            reward_funcs=list(task.reward_funcs),
            train_dataset=task.train_dataset,
            eval_dataset=task.eval_dataset,
            args=config,
        )
        trainer.train()
    (entry,) = (entry for entry in trainer.state.log_history if "eval_reward" in entry)
    assert math.isfinite(entry["eval_reward"])


def _tiny_model(folder: Path) -> Path:
    """A random Llama over digits, which answers with a number often enough."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *"0123456789+="])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(""), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


# --- rewards relative to the group


def test_group_rewards_compare_the_completions_of_a_prompt() -> None:
    spec = f"{Path(group_tasks.__file__)}:words"
    with pytest.raises(UserError, match=r"group reward shortest\(\): give num_generations=N"):
        reward_funcs(spec)
    (function,) = reward_funcs(spec, workers=1, num_generations=2, max_abstain_share=1.0)
    log = Log()
    try:
        rows = [json.dumps({"id": number}) for number in ("0", "0", "1", "1")]
        columns = {"row": rows, "task": None}
        assert function(**{**batch(["a", "aa", "bb", "b"]), **columns}, **log.keywords()) == [0.75, 0.5, 0.0, 0.25]
        with pytest.raises(UserError, match="compares the 2 completions of a prompt, and this process got 3 of them"):
            function(**batch(["a", "a", "a"], row={"id": "0"}, task=None))
        # One row twice, side by side; compared with all four, "aa" would be as long as the shortest of its own pair.
        twice = function(**batch(["aa", "aaa", "a", "b"], row={"id": "0"}, task=None))
        assert twice == [0.75, 0.5, 0.75, 0.25]
    finally:
        function.close()
    assert log.metrics["group_tasks.words/shortest"] == 0.5


def test_a_completion_alone_is_a_group_in_an_evaluation_of_one_completion_a_prompt() -> None:
    spec = f"{Path(group_tasks.__file__)}:words"
    (training,) = reward_funcs(spec, workers=1, num_generations=2)
    (evaluating,) = reward_funcs(spec, workers=1, num_generations=2, num_generations_eval=1)
    try:
        with pytest.raises(UserError, match=r"got 1 of them: .*per_device_eval_batch_size.*num_generations_eval=…"):
            training(**batch(["a"], row={"id": "0"}, task=None))
        alone = pickle.loads(pickle.dumps(evaluating))
        assert alone(**batch(["a"], row={"id": "0"}, task=None)) == [0.5]
        alone.close()
    finally:
        training.close()
        evaluating.close()


# --- judges


def test_judges_are_asked_and_an_abstention_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRPO_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with judging(lambda asked: "Hm." if "mute" in asked.texts[0] else asked.grade(len(asked.texts[0]))) as server:
        [function] = reward_funcs(judged_tasks.polite(server.url), workers=1)
        rows = [judged_tasks.Question(id="q0", gold="well").model_dump_json()] * 3
        rewards = function(completions=["12345", "mute", " "], row=rows)
        function.close()

    assert rewards == [1.25, None, 0.0]
