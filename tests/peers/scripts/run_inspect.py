import tempfile
from itertools import groupby

from inspect_ai import eval as inspect_eval
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from report import answer, batch, report

from grpo_sdk.interop.inspect import sample_of, task


def output(text):
    """What the model says; with its tokens counted, for which inspect would download an encoding."""
    made = ModelOutput.from_content("mockllm/model", text)
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


def score(samples):
    """What the log of an evaluation holds of the samples of a task."""
    evaluation = task(samples[0]["task"])
    rows = [sample_of(each["task"], each["row"]) for each in samples]
    evaluation.dataset = MemoryDataset([row.model_copy(update={"id": index}) for index, row in enumerate(rows)])
    model = get_model("mockllm/model", custom_outputs=[output(each["completion"]) for each in samples])
    (log,) = inspect_eval(evaluation, model=model, log_dir=tempfile.mkdtemp(), display="none", max_samples=1)
    assert log.status == "success", log.error
    for each in log.samples:
        value = each.scores["score"].value
        if isinstance(value, dict):
            yield answer(value.pop("reward"), value)
        else:
            assert value != value
            yield answer(None, unscored="unscored: in no metric")
    assert sum(isinstance(each.scores["score"].value, float) for each in log.samples) == (
        log.results.scores[0].unscored_samples
    )


answers = [each for _, group in groupby(batch(), key=lambda sample: sample["task"]) for each in score(list(group))]
report("inspect-ai", "inspect_ai.eval", answers)
