import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_runs import LOST, evaluation_of

from grpo_core.evaluation import output
from grpo_core.evaluation.output import (
    EvaluationFolder,
    Meta,
    check_kept,
    read_meta,
    read_rates,
    safe_name,
    write_results,
)
from grpo_core.evaluation.results import Certainty, Evaluation, TokenStatistics
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

SETTINGS = EvaluationSettings(n=2, temperature=0.7)


def evaluation(*solved: bool | None) -> Evaluation:
    """Two completions a row; None is one that was not scored."""
    scores = [LOST if each is None else Score(float(each), {"right": float(each)}, True, each) for each in solved]
    rows = [Row(id=f"row {index}", difficulty=float(index)) for index in range(len(solved) // 2)]
    statistics = TokenStatistics(0.5, 0.1, 1.0, 0.9)
    certainty, texts = [Certainty(statistics, statistics)] * len(solved), ["a,b\n\ud800"] * len(solved)
    return evaluation_of(scores, 2, rows=rows, texts=texts, lengths=[3] * len(solved), certainty=certainty)


def meta(found: Evaluation, step: str = "step_1") -> Meta:
    own: dict[str, Any] = {"model": "m", "adapter": None, "task": "t.t?split=test", "identity": "abc"}
    measured: dict[str, Any] = {"settings": SETTINGS.deciding(), "summary": found.summary(), "timing": found.timing()}
    return Meta(run="run", step=step, **own, **measured)


def write(folder: Path, found: Evaluation, step: str = "step_1") -> Path:
    target = EvaluationFolder(folder, "run", "t.t").results(step, SETTINGS)
    write_results(target, found, meta(found, step))
    return target


def wanted(**changed: Any) -> dict[str, Any]:
    own = {"task": "t.t?split=test", "identity": "abc", "conditions": {}, "model": "m", "precision": "float32"}
    return {**SETTINGS.deciding(), **own, **changed}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    found = evaluation(True, False, None, None, True, True)
    folder = write(tmp_path, found)
    assert folder == tmp_path / "run_t.t" / "step_1" / "temp0.7_p1.0_r2"
    for name in ("records.jsonl.gz", "metrics.csv", "run_meta.json"):
        assert (folder / name).read_bytes() == (write(tmp_path / "again", found) / name).read_bytes()
    assert read_meta(folder) == meta(found)
    assert read_rates(folder) == found.rates()
    with gzip.open(folder / "records.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    assert len(records) == 6
    assert records[0]["text"] == "a,b\n\ud800", "whatever a model or an endpoint wrote"
    assert (records[3]["row"]["id"], records[3]["sample"], records[3]["score"]["value"]) == ("row 1", 1, None)
    assert records[0]["entropy"] == {"mean": 0.5, "std": 0.1, "max": 1.0, "p95": 0.9}

    with (folder / "metrics.csv").open(newline="") as file:
        first, lost, last = csv.DictReader(file)
    assert (first["row"], first["difficulty"], first["completions"], first["scored"]) == ("row 0", "0.0", "2", "2")
    # 1 - C(1,2)/C(2,2) = 1: one of two is right, and both are drawn.
    assert (first["solved"], first["solved_rate"], first["pass@1"], first["pass@2"]) == ("1", "0.5", "0.5", "1.0")
    assert (first["part/right"], first["length_mean"], first["surprisal_p95"]) == ("0.5", "3.0", "0.9")
    assert (lost["scored"], lost["solved_rate"], lost["pass@1"], lost["reward"]) == ("0", "", "", "")
    assert last["solved_rate"] == "1.0"


class CountedScores(list[Score]):
    """Counts how many of its scores are handed out."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.reads += len(found) if isinstance(at, slice) else 1
        return found


def test_the_table_takes_time_in_proportion_to_its_rows() -> None:
    def reads(rows: int) -> int:
        found = evaluation(*[True, False] * rows)
        counted = CountedScores(found.scores)
        assert len(output.row_metrics(replace(found, scores=counted))) == rows
        return counted.reads

    assert reads(100) == 2 * reads(50)


def test_a_spreadsheet_runs_nothing_of_a_data_set(tmp_path: Path) -> None:
    found = evaluation(True, False)
    rows = [found.rows[0].model_copy(update={"id": "=HYPERLINK(A1)"}), *found.rows[1:]]
    folder = write(tmp_path, replace(found, rows=rows))
    assert (folder / "metrics.csv").read_text().splitlines()[1].startswith("'=HYPERLINK(A1),")
    assert read_rates(folder).ids[0] == "=HYPERLINK(A1)"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, evaluation(True, True))

    def full(*given: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output, "write_json", full)
    with pytest.raises(UserError, match="No space left on device"):
        write(tmp_path, evaluation(False, False))
    assert read_rates(folder).solved == (1.0,)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing half-written stays"
    monkeypatch.undo()
    write(tmp_path, evaluation(False, False))
    assert read_rates(folder).solved == (0.0,), "a second write replaces the first"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_consolidated_has_a_line_for_each_checkpoint_with_its_difference(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path, "run", "t.t")
    write(tmp_path, evaluation(False, False, True, False), "base")
    for step in ("step_10", "step_final", "step_2"):
        write(tmp_path, evaluation(True, False, True, True), step)
    found = folder.consolidate(SETTINGS, "base")
    assert list(found) == ["base", "step_2", "step_10", "step_final"]
    # Shares 0.5 and 1 over 0 and 0.5.
    assert found["step_2"]["delta"] == 0.5
    with (folder.path / "consolidated_metrics.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["step"] for line in lines] == ["base", "2", "10", "final"]
    assert [line["delta"] for line in lines] == ["", "0.5", "0.5", "0.5"]
    assert lines[0]["parts/right/mean"] == "0.25"
    assert folder.consolidate(replace(SETTINGS, n=8), "base") == {}, "of another sampling there is none"
    other = evaluation(False, False)
    write_results(folder.results("base", SETTINGS), other, replace(meta(other, "base"), identity="other"))
    assert "delta" not in folder.consolidate(SETTINGS, "base")["step_2"], "a control on other rows is none"


def test_kept_only_if_it_is_the_same_evaluation(tmp_path: Path) -> None:
    folder = write(tmp_path, evaluation(True, True))
    assert check_kept(folder, wanted())
    assert not check_kept(folder.with_name("temp0.0_p1.0_r1"), wanted())
    assert check_kept(folder, wanted(model="moved")), "a checkpoint may have been moved"
    changed = {"seed": 3, "identity": "other", "size": 7, "task": "t.u", "conditions": {"sandbox": "L2"}}
    for name, value in changed.items():
        with pytest.raises(UserError, match=f"{name}=.* there"):
            check_kept(folder, wanted(**{name: value}))
    control = write(tmp_path, evaluation(True, True), "base")
    with pytest.raises(UserError, match="model='m' there, 'other' here"):
        check_kept(control, wanted(model="other"))


@pytest.mark.parametrize("text", ["row,other\n1,2\n", "row,solved_rate,reward\na,much,1\n", None])
def test_a_damaged_file_is_named(tmp_path: Path, text: str | None) -> None:
    folder = write(tmp_path, evaluation(True, True))
    if text is None:
        (folder / "metrics.csv").unlink()
    else:
        (folder / "metrics.csv").write_text(text)
    with pytest.raises(UserError, match=r"metrics\.csv is damaged"):
        read_rates(folder)
    (folder / "run_meta.json").write_text('{"version": 1, "run": "x"}')
    with pytest.raises(UserError, match="damaged"):
        read_meta(folder)


def test_names() -> None:
    assert safe_name("math.gsm8k?template=r1&split=test") == "math.gsm8k_template_r1_split_test"
    assert safe_name("../../etc") == "etc"
    assert safe_name("???") == "unnamed"
    assert len(safe_name("a" * 500)) == 120
