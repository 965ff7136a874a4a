import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import broken_tools
import hackable_tasks
import pytest
from hackable_tasks import Sum

from grpo_sdk import UserError, reward
from grpo_sdk.check.answers import canonical, read_gold
from grpo_sdk.check.fuzz import fuzz
from grpo_sdk.check.results import ADVICE, FuzzReport
from grpo_sdk.cli.main import main
from grpo_sdk.task.exemptions import FINDINGS
from grpo_sdk.task.tools.calls import read_tool_turns

FILE = Path(hackable_tasks.__file__)
EXAMPLES = Path(__file__).parents[4] / "examples"


@cache
def fuzzed(name: str, n: int = 200, seed: int = 0) -> FuzzReport:
    return fuzz(f"{FILE}:{name}", n, seed)


def kinds(report: FuzzReport) -> set[str]:
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize("name", ["tolerant", "tolerant_small", "sound_words", "sound_sums", "sound_tags"])
def test_a_task_that_is_right_has_no_finding(name: str) -> None:
    assert not fuzzed(name).findings


@pytest.mark.parametrize("seed", [0, 1])
def test_an_answer_that_many_rows_share_is_chance(seed: int) -> None:
    report = fuzzed("sound_verdicts", seed=seed)
    assert not report.findings and 0.5 < report.chance < 0.9
    # Wilson's upper end for 0 of 40: z²/(n + z²) with z = 1.96.
    assert (report.hackability, report.hackability_high) == (0.0, pytest.approx(3.8415 / 43.8415, abs=1e-4))


@pytest.mark.parametrize(("name", "kind"), [
    ("nan_equal", "constant"),
    ("truncated", "changed"),
    ("part_of_gold", "partial"),
    ("same_characters", "partial"),
    ("same_length", "partial"),
    ("same_parity", "partial"),
    ("without_zeros", "changed"),
    ("some_letters", "constant"),
])  # fmt: skip
def test_a_comparison_of_a_part_is_found(name: str, kind: str) -> None:
    assert kind in kinds(fuzzed(name, 150))


@pytest.mark.parametrize(("name", "expected", "others"), [
    ("substring", {"several", "changed"}, set()),
    ("any_of_several", {"several"}, {"changed"}),
    ("form_first", {"unearned"}, set()),
    ("answer_in_prompt", {"copy"}, set()),
    ("truthy", {"nothing", "constant"}, set(FINDINGS)),
    ("crashing", {"crash"}, set(FINDINGS)),
])  # fmt: skip
def test_a_broken_task_has_its_findings(name: str, expected: set[str], others: set[str]) -> None:
    report = fuzzed(name)
    assert expected <= kinds(report) <= expected | others
    for finding in report.findings:
        assert finding.meaning == FINDINGS[finding.kind] and not finding.exempt
        assert finding.earning > 20 or finding.kind not in expected
    assert report.hackability == 1.0 and report.hackability_low > 0.9
    assert report.failures == report.findings


def test_hackability_counts_the_rows_of_all_attacks_of_a_kind() -> None:
    report = fuzzed("longer")
    (finding,) = report.findings
    assert (finding.kind, finding.earning, report.hackability) == ("changed", 40, 1.0)


def test_what_judges_decide_is_no_finding() -> None:
    report = fuzzed("judged")
    assert not report.findings and report.note.startswith("judges have a say and none was asked")
    assert not fuzz(f"{EXAMPLES}/tasks/apology.py:apology", 60).findings
    assert kinds(fuzzed("judged_crashing", 60)) == {"crash"}


def test_a_finding_is_as_small_as_it_gets() -> None:
    by_kind = {finding.kind: finding.completion for finding in fuzzed("truthy").findings}
    assert len(by_kind["nothing"]) == 1 and len(by_kind["constant"]) == 1
    (form,) = fuzzed("form_first").findings
    assert form.completion == "<answer></answer>" and form.value == pytest.approx(0.6) and form.gold_value == 1.0


def test_text_that_is_run_is_found_and_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = fuzzed("evaluating", 60)
    assert "evaluated" in kinds(report)
    assert not list(tmp_path.iterdir()), "the files that text creates are removed"
    assert all(str(tmp_path) not in finding.completion for finding in report.findings)


@pytest.mark.parametrize("name", ["backtracking", "backtracking_fails"])
def test_a_completion_that_hangs_is_a_finding(name: str) -> None:
    task = replace(getattr(hackable_tasks, name), timeout_s=0.2)
    (finding,) = (each for each in fuzz(task, 80).findings if each.kind == "slow")
    assert "no answer within 0.2 s" in finding.why
    assert "aaa" in finding.completion and len(finding.completion) < 10_000  # of 30,000


def test_a_declared_finding_is_exempt_with_its_reason_and_the_command_says_the_same(capsys):
    report = fuzzed("declared", 60, 5)
    assert {finding.kind: finding.exempt for finding in report.findings} == {
        "several": "a list is allowed here",
        "changed": "",
    }
    assert [finding.kind for finding in report.failures] == ["changed"]
    options = ("-k", "gold", "--rows", "1", "--fuzz", "60", "--seed", "5", "--json")
    assert main(["check", f"{FILE}:declared", *options]) == 1
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["fuzz"] == json.loads(json.dumps(report.as_json())), "the same seed, the same report"
    exempt = next(result for result in task["results"] if result["status"] == "exempt")
    assert (exempt["check"], exempt["text"]) == ("fuzz.several", "a list is allowed here")


def test_forms_of_a_gold_are_no_findings_but_counted() -> None:
    report = fuzzed("sound_sums")
    assert report.forms["a space after it"] == (4, 4) and report.forms["zeros after the point"] == (0, 4)


def test_rows_without_golds_are_said() -> None:
    rows = [row.model_copy(update={"gold": None}) for row in hackable_tasks.sums()]
    report = fuzz(replace(hackable_tasks.sound_sums, load=lambda: rows), 60)
    assert report.note.startswith("40 of 40 rows have no gold") and not report.findings


def test_a_task_of_one_row_is_fuzzed() -> None:
    rows = [Sum(id="0", gold="5", a=2, b=3)]
    assert not fuzz(replace(hackable_tasks.sound_sums, load=lambda: rows), 150).findings


@pytest.mark.parametrize(("n", "rows"), [(0, 40), (10, 0), (10**9, 40)])
def test_a_number_out_of_range_is_refused(n: int, rows: int) -> None:
    with pytest.raises(UserError, match=r"fuzz: "):
        fuzz(f"{FILE}:sound_sums", n, rows=rows)


def test_a_gold_is_read_around_its_answer() -> None:
    gold = read_gold("2 + 3 = 5\n#### 5")
    assert (gold.before, gold.answer, gold.after) == ("2 + 3 = 5\n#### ", "5", "")
    tagged = read_gold("<think>x</think><answer> yes </answer>")
    assert (tagged.before, tagged.answer, tagged.after) == ("<think>x</think><answer> ", "yes", " </answer>")
    assert canonical("1,200.0") == canonical(" 1200 ") and canonical("Yes.") == canonical("yes")


TOOLS = Path(broken_tools.__file__)


def test_calls_that_solve_without_the_golds_are_found_and_made_few() -> None:
    report = fuzz(f"{TOOLS}:pay", 120)
    finding = next(each for each in report.findings if each.kind == "calls")
    (*_, last) = read_tool_turns(finding.completion)[0]
    assert last.calls[0].name == "order" and finding.solved and finding.earning > 20
    assert len(read_tool_turns(finding.completion)[0]) == 2, "a look and an order: neither can be left out"
    assert finding.attack.startswith("calls with what the prompt and results show")


def test_calls_that_earn_more_than_the_gold_are_found() -> None:
    looks = reward(0.3, maximum=4.0)(lambda calls: float(sum(call.name == "look_up" for call in calls)))
    is_solved = {"solved": lambda parts: parts["right"] == 1.0}
    task = replace(broken_tools.faultless, rewards=(broken_tools.right, looks), **is_solved)
    by_kind = {each.kind: each for each in fuzz(task, 120).findings}
    assert set(by_kind) == {"overpaid", "unearned"}
    assert (by_kind["overpaid"].value or 0) > (by_kind["overpaid"].gold_value or 0) > 1


def test_calls_that_are_the_same_in_all_rows_may_be_paid_too_much() -> None:
    ordered = reward()(lambda calls: float(any(call.name == "order" for call in calls)))
    task = replace(broken_tools.faultless, rewards=(broken_tools.right, ordered))
    assert kinds(fuzz(task, 120)) == {"unearned"}


def test_a_task_with_tools_that_is_right_has_no_finding() -> None:
    report = fuzz(f"{TOOLS}:faultless", 120)
    assert not report.findings and (report.completions, report.not_scored) == (120, 0)
    assert not {"bold", "quotes"} & {name for name, (solved, tried) in report.forms.items() if solved < tried}


def test_tools_that_hang_or_crash_are_found() -> None:
    assert kinds(fuzz(f"{TOOLS}:crash", 20)) == {"crash"}
    assert kinds(fuzz(replace(broken_tools.hang, timeout_s=0.2), 12)) == {"slow"}


SEVERAL = ["fuzz.several", "Read exactly one answer", "hackability 1.00 (95%: 0.91"]
NONE = ["none of 60 completions", "hackability 0, at most 0.09"]


@pytest.mark.parametrize(("name", "code", "printed"), [("any_of_several", 1, SEVERAL), ("sound_sums", 0, NONE)])
def test_the_command_prints_findings_with_their_advice(name, code, printed, capsys):
    assert main(["check", f"{FILE}:{name}", "-k", "gold", "--rows", "1", "--fuzz", "60"]) == code
    out = " ".join(capsys.readouterr().out.split())
    assert all(words in out for words in printed)


def test_every_kind_of_finding_has_advice() -> None:
    assert set(ADVICE) == set(FINDINGS)
