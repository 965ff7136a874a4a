"""A task with `shared` held-out rows among those of training."""

from grpo_sdk import Row, Task, TaskConfig, reward


class Problem(Row):
    text: str


class Config(TaskConfig):
    shared: int = 0


def load(config) -> list[Problem]:
    own = [f"{config.split} {number}" for number in range(4)]
    texts = [f"shared {number}" for number in range(config.shared)] + own[config.shared :]
    return [Problem(id=f"{config.split}{number}", text=text) for number, text in enumerate(texts)]


@reward()
def right(answer):
    return 1.0


one = Task("one", load, lambda row: row.text, lambda text, row: text, (right,), config=Config, default_model="tiny")
