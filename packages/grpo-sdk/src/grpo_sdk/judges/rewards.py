"""Judged rewards, as a task's author writes them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

from grpo_sdk.errors import UserError, near_match
from grpo_sdk.judges.models import ClassifierModel
from grpo_sdk.task.judging import JudgedGroupReward, JudgedReward, JudgeModel

_COMMON = ("weight", "name", "question", "reference", "shown", "max_chars", "known")
MAX_SCALE = 100
MAX_CRITERION_CHARS = 20_000


def rubric(criterion: str, *, model: JudgeModel, **options: Any) -> JudgedReward:
    """A reward that a model gives by a rubric: a grade from 0 to `scale`, divided by it.

    Only completions that the validator takes are judged; others get 0. A completion that the judge gives no verdict
    on abstains.

    Args:
        criterion: What is judged, in words: "The answer is polite, and says where the information is from."
        model: The model that judges, e.g. `Endpoint("http://localhost:8000/v1", "qwen")`.
        options: `weight` (1.0), `name` of the part ("rubric"), `needs` (an earlier reward that must reach its maximum
            before the judge is asked), `scale` (best grade: 10; 1 asks yes or no), `question` (`(row)` -> what the
            completion answers; by default the prompt), `reference` (`(row)` -> an answer to compare with), `shown`
            (`text`, or the validator's `answer`), `max_chars` (longest text that is judged: 32,768) and `known`
            (completions with known verdicts, or the path of a JSONL file of them).

    Raises:
        UserError: an option that does not exist or is out of range.

    Examples:
        >>> from grpo_sdk.judges import Endpoint, rubric
        >>> rubric("It is polite.", model=Endpoint("http://localhost:8000/v1", "qwen"), weight=0.5).weight
        0.5
    """
    _check_options("rubric", options, (*_COMMON, "needs", "scale"))
    judge = JudgedReward(kind="rubric", criterion=criterion, model=model, **{"name": "rubric", **options})
    return _checked(judge)


def pairwise(criterion: str, *, model: JudgeModel, **options: Any) -> JudgedGroupReward:
    """A reward relative to the group: the share of comparisons that an answer wins, a tie counting one half.

    Both orders of a pair are asked, so that a preference for the first or the second answer cancels. Like every group
    reward it is absent where completions are scored one at a time, and says nothing about `solved`.

    Args:
        criterion: What makes an answer the better one, in words.
        model: The model that judges.
        options: As for `rubric`, without `needs` and `scale`; and `comparisons`: others that each answer is compared
            with, an even number; by default all. G answers take G · (G − 1) requests, or G · comparisons.

    Raises:
        UserError: an option that does not exist or is out of range.
    """
    _check_options("pairwise", options, (*_COMMON, "comparisons"))
    judge = JudgedGroupReward(kind="pairwise", criterion=criterion, model=model, **{"name": "pairwise", **options})
    count = judge.comparisons
    if count is not None and (count < 2 or count % 2):
        raise UserError(f"judge {judge.name!r}: comparisons={count} must be an even number of at least 2.")
    return _checked(judge)


def classifier(
    model: str, *, label: str | None = None, device: str = "auto", batch_size: int = 8, **options: Any
) -> JudgedReward:
    """A reward from a sequence classifier or reward model of transformers: a probability in [0, 1].

    A model with several labels gives the probability of `label` (softmax); one with a single output, as reward models
    have, gives its sigmoid. Weights are read from safetensors, and code of the model's repository is never run.

    Args:
        model: Local folder or hub id of a model for `AutoModelForSequenceClassification`.
        label: Label whose probability is the value, where the model has several.
        device: Its device; `auto` takes an accelerator if there is one.
        batch_size: Completions that are classified at once.
        options: `weight`, `name` ("classifier"), `needs`, `question`, `shown`, `max_chars` and `known`, as for
            `rubric`; `with_question=False` gives the model the completion alone, not the prompt and the completion as
            a pair of texts; `timeout_s` (120) and `cache` (True).

    Raises:
        UserError: an option that does not exist or is out of range.
    """
    _check_options("classifier", options, (*_COMMON, "needs", "with_question", "timeout_s", "cache"))
    limits = {name: options.pop(name) for name in ("timeout_s", "cache") if name in options}
    criterion = "alone" if options.pop("with_question", True) is False else "pair"
    judged_by = ClassifierModel(model, label=label, device=device, batch_size=batch_size, **limits)
    options = {"name": "classifier", **options}
    return _checked(JudgedReward(kind="classifier", criterion=criterion, model=judged_by, **options))


def _check_options(function: str, options: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for name in options:
        if name not in allowed:
            raise UserError(
                f"{function}() has no option {name!r}; it has {', '.join(sorted(allowed))}.{near_match(name, allowed)}"
            )


Judge = TypeVar("Judge", bound=JudgedReward)


def _checked(judge: Judge) -> Judge:
    if not isinstance(judge.name, str) or not judge.name.isidentifier():
        raise UserError(f"judge name={judge.name!r}: parts are kept by name; use letters, digits and _.")
    where = f"judge {judge.name!r}"
    if not isinstance(judge.criterion, str) or not 0 < len(judge.criterion.strip()) <= MAX_CRITERION_CHARS:
        raise UserError(f"{where}: the criterion must be a text of 1 to {MAX_CRITERION_CHARS} characters.")
    if not dataclasses.is_dataclass(judge.model) or not hasattr(judge.model, "backend"):
        raise UserError(f"{where}: model={judge.model!r:.80} must be an Endpoint, a LocalModel or a CustomModel.")
    if not isinstance(judge.weight, int | float) or not math.isfinite(judge.weight):
        raise UserError(f"{where}: weight={judge.weight!r} must be a finite number.")
    if not isinstance(judge.scale, int) or not 1 <= judge.scale <= MAX_SCALE:
        raise UserError(f"{where}: scale={judge.scale!r} must be a whole number from 1 to {MAX_SCALE}.")
    if judge.shown not in ("text", "answer"):
        raise UserError(f"{where}: shown={judge.shown!r} must be text or answer.")
    if not isinstance(judge.max_chars, int) or judge.max_chars < 1:
        raise UserError(f"{where}: max_chars={judge.max_chars!r} must be a whole number of at least 1.")
    for name in ("question", "reference"):
        function = getattr(judge, name)
        if function is not None and not callable(function):
            raise UserError(f"{where}: {name}={function!r:.40} must be a function of row.")
    return judge
