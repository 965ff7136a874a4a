"""A plugin's diagnostics: sound ones, and each mistake that they may make."""

import os
import time

from grpo_sdk import Diagnosis


def level() -> list[Diagnosis]:
    return [Diagnosis("sandbox", "ok", "L3"), Diagnosis("engine", "warn", "not found: install it")]


def crash() -> None:
    raise RuntimeError("a bug")


def hang() -> None:
    time.sleep(60)


def vanish() -> None:
    os._exit(3)


def words() -> list[str]:
    return ["fine"]


def long() -> list[Diagnosis]:
    return [Diagnosis("a", "ok", "x" * 9999)] * 99
