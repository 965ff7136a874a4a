"""A split with two rows of one id."""

from grpo_core import Row, Task, reward


def load(config):
    ids = {"train": ["a", "b"], "validation": ["c", "c"], "test": ["d"]}[config.split]
    return [Row(id=each, gold=each) for each in ids]


@reward()
def right(answer, row):
    return 1.0


twins = Task("twins", load, lambda row: f"Say {row.id}", lambda text, row: text, (right,), row=Row)
