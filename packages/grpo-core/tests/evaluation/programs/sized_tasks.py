"""Tasks whose prompts have the lengths that `lengths` says."""

from grpo_sdk import Row, Task, TaskConfig, reward


class Config(TaskConfig):
    lengths: str = "20,30"


class Sized(Row):
    prompt: str


def load(config) -> list[Sized]:
    sizes = config.lengths if config.split == "test" else "20,21,22,23"
    return [
        Sized(id=f"{config.split}{number}", prompt=("1 2 3 4 5 6 7 8 9 " * 400)[number:][: int(size)])
        for number, size in enumerate(sizes.split(","))
    ]


@reward()
def any_answer(answer):
    return 1.0


PARTS = (load, lambda row: row.prompt, lambda text, row: text, (any_answer,))
sized = Task("sized", *PARTS, config=Config, max_completion_length=64)
plain = Task("plain", *PARTS, config=Config)
