"""Splits of many rows, which share some far from their beginning."""

from grpo_sdk import Row, Task

EVERY = [Row(id=f"p{n}", gold=str(n)) for n in range(3000)]


def load(config):
    return {"train": EVERY[:1900], "validation": [], "test": EVERY[1900:2500] + EVERY[1800:1850]}[config.split]


late = Task("late", load, lambda row: row.id, lambda text: text, (lambda text, row: float(text == row.gold),), row=Row)
