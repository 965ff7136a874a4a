"""A task file, with rewards that no source tells apart: made with exec, of a set and a nested function."""

from collections.abc import Iterable

from grpo_sdk import Row, Task, TaskConfig, reward


class Options(TaskConfig):
    tone: str = "plain"
    strict: bool = False


def load(config) -> Iterable[Row]:
    return [Row(id=f"r{number}", gold="yes") for number in range(5)]


def prompt(row, config):
    return f"({config.tone}) {row.id}?"


def validate(text, row):
    return text.strip()


@reward()
def agrees(answer, row):
    return float(answer in {"yes", "sure", "indeed"})


made = {}
exec("def nods(answer): return float((lambda a: a)(answer) in {'yes', 'sure', 'indeed', 'aye'})", made)
exec("def compose(specs, parts, valid): return sum(parts.values())", made)
couplet = Task("couplet", load, prompt, validate, (agrees,), config=Options)
unreadable = Task("unreadable", load, prompt, validate, (made["nods"],), config=Options, compose=made["compose"])
not_a_task = 3
