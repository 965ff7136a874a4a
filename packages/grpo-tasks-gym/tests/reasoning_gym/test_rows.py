from pathlib import Path
from typing import Any

import pytest

from grpo_sdk import UserError, load_task
from grpo_sdk.data import ExhaustedError
from grpo_tasks_gym.reasoning_gym.sources import build


def questions(spec: str) -> list[str]:
    return [row.question for row in load_task(f"reasoning_gym.{spec}").rows()]


def built(spec: str) -> Any:
    """The data set of a task, in this process."""
    config = load_task(spec).config
    return build(config, config.level_range()[0], seed=0)  # type: ignore[arg-type, attr-defined]


def test_entries_that_depend_on_the_process_are_the_same_in_every_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some iterate over sets, others run programs that draw random numbers; none imports what lies where it is run."""
    (tmp_path / "orjson.py").write_text("raise SystemExit('taken from the working directory')")
    (tmp_path / "mix.yaml").write_text(
        "datasets:\n- {name: word_ladder, weight: 1, config: {}}\n- {name: codeio, weight: 2, config: {}}\n"
    )
    monkeypatch.chdir(tmp_path)
    task = load_task("reasoning_gym.composite?path=mix.yaml&seed=2&size=16")
    loaded = []
    for hash_seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        loaded.append(task.with_options().rows())
    assert loaded[0] == loaded[1]
    assert all(task.score(row.gold or "", row).solved for row in loaded[0])


def test_splits_and_seeds_have_entries_of_their_own() -> None:
    others = ("split=validation", "split=test", "seed=1")
    rows = [questions(f"leg_counting?size=30&{options}") for options in ("split=train", *others)]
    assert len({question for each in rows for question in each}) == 120


def test_rows_take_the_levels_in_turn_and_options_override_a_level() -> None:
    rows = load_task("reasoning_gym.leg_counting?difficulty=0-2&size=6").rows()
    assert [row.difficulty for row in rows] == [0, 1, 2, 0, 1, 2]
    many = questions("leg_counting?difficulty=0&min_animals=5&max_animals=5&size=3")
    assert all(question.count(",") >= 4 for question in many)


def test_a_stream_goes_on_after_the_entries_of_one_instance_until_the_space_ends() -> None:
    rows = load_task("reasoning_gym.chain_sum?size=600").rows()
    assert len({row.id for row in rows}) == 600
    with pytest.raises(ExhaustedError, match=r"only \d+ distinct rows of split 'train' exist"):
        questions("tower_of_hanoi?min_disks=3&max_disks=3&size=1000")


@pytest.mark.parametrize(("spec", "message"), [
    ("leg_counting?max_animal=5", "Did you mean 'max_animals'"),
    ("leg_counting?max_animals=99", "must be <= number of available animals"),
    ("leg_counting?difficulty=99", "a level from 0 to"),
    ("leg_counting?difficulty=3-1", "the first level is above the last"),
    ("leg_counting?difficulty=x", "a level from 0 to"),
    ("acre?difficulty=1", "has no curriculum"),
    ("leg_counting?path=rows.jsonl", "reads no file"),
    ("composite?datasets=leg_countin", "Did you mean 'leg_counting'"),
    ("composite?datasets=chain_sum:many", "weight of chain_sum must be a number above 0"),
    ("word_ladder?min_word_length=9&max_word_length=2", "max_word_length"),
    ("time_intervals?min_date=soon", "min_date"),
])  # fmt: skip
def test_mistakes_are_named(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        built(f"reasoning_gym.{spec}")


@pytest.mark.parametrize("text", ["{a: [", "- 1", "", "datasets: 3", "datasets:\n- {nme: chain_sum}", "sizes: 4"])
def test_a_file_that_is_no_mixture_is_named(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "mix.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mix\.yaml is no mixture"):
        built(f"reasoning_gym.composite?path={file}")


def test_a_mistake_is_told_by_the_process_that_generates() -> None:
    with pytest.raises(UserError, match=r"missing\.yaml: No such file"):
        questions("composite?path=missing.yaml")


def test_composite_mixes_by_weight_and_scores_each_by_its_own_scorer() -> None:
    task = load_task("reasoning_gym.composite?datasets=leg_counting:3,chain_sum&size=40")
    rows = task.rows()
    legs = sum("legs" in row.question for row in rows)
    assert 20 < legs < 40 and all(task.score(row.gold or "", row).solved for row in rows)


def test_a_generator_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert questions("bf?size=3&difficulty=1")
    assert capsys.readouterr().out == ""
