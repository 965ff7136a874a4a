import json
from pathlib import Path
from typing import Any

import pytest
from judge_processes import small_classifier

from grpo_core.evaluation.model_judges import make_classifier, make_language_model
from grpo_core.policy.fresh import byte_tokenizer, fresh_model
from grpo_sdk.errors import UserError

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "


def answered(handler: Any, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    replies: list[dict[str, Any]] = json.loads(handler(json.dumps(calls).encode()))
    return replies


def test_a_chat_model_writes_a_reply_to_each_call(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    fresh_model("tiny", 0, tokenizer)[0].save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    judge = make_language_model(str(tmp_path), "cpu", 0.0, 8)
    calls = [{"messages": [{"role": "user", "content": text}]} for text in ("a", "bb", "x" * 600)]

    short, other, overlong = answered(judge, *calls)
    assert short["output_tokens"] <= 8 and short["text"] and not short["error"]
    assert (short["input_tokens"], other["input_tokens"]) == (len("user: a\nassistant: "), len("user: bb\nassistant: "))
    assert overlong["error"].startswith(f"judge {tmp_path}: ")
    assert (short["is_too_long"], overlong["is_too_long"]) == (False, True)
    assert answered(judge, calls[0]) == [short], "alone as in a batch"


def test_a_model_without_a_chat_template_cannot_judge() -> None:
    with pytest.raises(UserError, match="judge tiny: its tokenizer has no chat template; a judge needs an instruct"):
        make_language_model("tiny", "cpu", 0.0, 8)


def test_a_reward_model_of_one_output_gives_its_sigmoid(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = small_classifier(tmp_path, ("reward",))
    pair, alone = answered(
        make_classifier(folder, "cpu", None), {"prompt": "away", "text": "please go"}, {"prompt": None, "text": "go"}
    )

    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = [model(**tokenizer(*texts, return_tensors="pt")).logits for texts in (("away", "please go"), ("go",))]
    assert [pair["value"], alone["value"]] == pytest.approx([float(torch.sigmoid(each)) for each in logits], abs=1e-5)


def test_a_text_that_does_not_fit_the_classifier_has_no_value(tmp_path: Path) -> None:
    judge = make_classifier(small_classifier(tmp_path, ("reward",)), "cpu", None)
    long_one, short_one = answered(judge, {"prompt": None, "text": "go " * 40}, {"prompt": None, "text": "go"})

    assert "a text of 40 tokens; the model takes 32" in long_one["error"] and long_one["is_too_long"]
    assert "value" in short_one


@pytest.mark.parametrize(("label", "head", "why"), [
    ("kind", True, "no label 'kind'; give one of rude, polite"),
    ("polit", True, "Did you mean 'polite'?"),
    (None, True, "give label= of rude, polite"),
    ("polite", False, "it has no trained classification head"),
])  # fmt: skip
def test_what_is_no_classifier_of_a_label_is_refused(tmp_path: Path, label: str | None, head: bool, why: str) -> None:
    folder = small_classifier(tmp_path, ("rude", "polite"), head=head)

    with pytest.raises(UserError) as error:
        make_classifier(folder, "cpu", label)
    assert why in str(error.value)


def test_weights_that_are_a_pickle_are_never_read(tmp_path: Path) -> None:
    folder = Path(small_classifier(tmp_path, ("reward",)))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(UserError, match="judge "):
        make_classifier(str(folder), "cpu", None)
