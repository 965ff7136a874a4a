"""Precision, recall, hangs and times of the math verifier, beside math-verify and verl's two verifiers.

    python benchmarks/verifiers.py --math-verify DIR --lighteval DIR --verl DIR --gsm8k FILE… [--rows 200] [--json]

Each DIR is a checkout of the project; one that is not given is left out, but for math-verify's main suite, of which the
tests of grpo-tasks-math hold a copy. The suites are those projects' own test cases, read from their sources without
running them. Ours is asked in both readings: free, and marked, which reads nothing outside marks. Of every right answer
to a short gold, wrong ones are made: a
number of the gold plus 1, a relation or a sign turned round, a pair reversed. The problems of GSM8K are taken with
their gold and with the gold plus 1, in the forms that models write. Every verifier runs in a worker that is killed
after `--timeout` seconds, which counts as a hang and as wrong. math-verify is called as its own tests call it, with its
own time limits; math_dapo is right if either of its two modes says so; both of verl's get the bare gold. prime_math
needs pylatexenc.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import logging
import re
import statistics
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arguments import command_line, count, file, folder, positive

from grpo_sdk import KillablePool
from grpo_tasks_math.competition import last_boxed
from grpo_tasks_math.verify import Reading, Verdict, symbolic
from grpo_tasks_math.verify import verify as ours_verify

OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("1000.99", "1000,99"): {"decimals": "comma"},
    ("1,22", "1.22"): {"decimals": "comma"},
    ("2.74", "Soucis : 2,74 $ a.."): {"decimals": "comma"},
    ("0,111", "0.111"): {"decimals": "comma"},
    (r"$(\frac{3}{5},\frac{8}{3}]$", "$(0.6,2.6667]$"): {"rel_tol": 0.01},
    (
        r"$(\begin{pmatrix}\frac{1}{3}\\ \frac{1}{5} \end{pmatrix})$",
        r"$\begin{pmatrix}0.33\\0.2 \end{pmatrix}$",
    ): {"rel_tol": 0.01},
}
"""Cases of math-verify's suite that ask for what is an option here."""
HOSTILE = [
    "9^{9^{9^{9}}}", "10^{10^{10}}", "(10^{10})!", r"\binom{10^9}{5 \cdot 10^8}", r"\gcd(10^{1000000}, 3)",
    r"3^{10^{10}} \mod 7", r"\log(10^{10^6})", r"\Gamma(1000000)", "(x+y+z)^{100}", "(x+1)^{2000}",
    r"\sum_{k=1}^{10^{10}} \frac{1}{k}", r"\prod_{k=1}^{10^6} k", r"\int_0^1 \frac{x^x \sin(x)}{1+x^5} dx", "|x|" * 60,
    r" \cup ".join(f"({n}, {n + 1})" for n in range(40)), "+".join(rf"\sin^2({n}x)" for n in range(1, 30)),
    "x^{x^{x^x}}", "1e999999999", r"\sqrt{1+" * 20 + "2" + "}" * 20, " < ".join("abcdefghij" * 10),
]  # fmt: skip
MATH_VERIFY_CASES = Path(__file__).parents[1] / "packages/grpo-tasks-math/tests/verify/math_verify_cases.json"
_SHORT = 80
"""Longest gold of which wrong answers are made: a longer one is a solution, not an answer."""


@dataclass(frozen=True)
class Case:
    """One pair of a suite; `targets` and `precision` are what math-verify's own test says of it."""

    suite: str
    gold: str
    completion: str
    is_right: bool
    targets: tuple[str, ...] = ("latex", "expr")
    precision: int = 6


def read_cases(suite: str, file: Path) -> Iterator[Case]:
    """Read `(gold, pred, expected)` out of the parametrised tests of a file, without running it."""
    for test in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(test, ast.FunctionDef):
            continue
        found = re.search(r"match_types=(\[[^]]*\])", ast.unparse(test))
        targets = tuple(ast.literal_eval(found[1])) if found else ("latex", "expr")
        for decorator in test.decorator_list:
            if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize"):
                continue
            names = [name.strip() for name in ast.literal_eval(decorator.args[0]).split(",")]
            if not {"gold", "pred", "expected"} <= set(names) or {"strict", "allow_set_relation_comp"} & set(names):
                continue
            assert isinstance(decorator.args[1], ast.List)
            for element in decorator.args[1].elts:
                assert isinstance(element, ast.Tuple)
                named = dict(zip(names, element.elts, strict=True))
                wanted = {n: named[n] for n in ("gold", "pred", "expected", "precision") if n in named}
                if not all(isinstance(node, ast.Constant) for node in wanted.values()):
                    continue  # computed from a library
                values = {name: ast.literal_eval(node) for name, node in wanted.items()}
                precision = values.get("precision", 6)
                yield Case(suite, values["gold"], values["pred"], bool(values["expected"]), targets, precision)


_NUMBER = re.compile(r"(?<![\w.{])[0-9]+(?![\w.,}%])")
_TURNED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", "+": "-", "-": "+"}


def wrong_golds(gold: str) -> Iterator[str]:
    """Golds for which the right answer to `gold` is wrong."""
    if len(gold) > _SHORT or gold.count("=") > 1 or "\\boxed" in gold:
        return  # of a chain of equations only the ends count
    for number in list(_NUMBER.finditer(gold))[-2:]:
        yield f"{gold[: number.start()]}{int(number[0]) + 1}{gold[number.end() :]}"
    for sign in re.finditer(r"[<>]|\\[lg]eq(?![a-z])|(?<=[\w}] )[-+]", gold):
        yield gold[: sign.start()] + _TURNED[sign[0]] + gold[sign.end() :]
    pair = re.fullmatch(r"\$?\((\w+), ?(\w+)\)\$?", gold)
    if pair and pair[1] != pair[2]:
        yield f"({pair[2]},{pair[1]})"


def wrong_cases(cases: list[Case]) -> Iterator[Case]:
    """Cases whose completion is right, each with golds for which it is wrong."""
    for case in cases:
        if case.is_right:
            for gold in wrong_golds(case.gold):
                yield Case("made wrong", gold, case.completion, False, case.targets, case.precision)


FORMS = (
    "{solution}", "#### {n}", "The answer is {n}.", r"So \boxed{{{n}}}.", r"\boxed{{{n}}}", "**{n}**", "${n}", "{n}.0",
    "{n} dollars", r"\boxed{{{latex}}}", "The answer is {grouped}.", "Answer: {grouped}", "$x = {n}$",
    "<think>7 or 8?</think>\n<answer>{n}</answer>",
)  # fmt: skip


def gsm8k_cases(file: Path, rows: int) -> Iterator[Case]:
    """Every row in every form, against its gold and against the gold plus 1."""
    for line in file.read_text(encoding="utf-8").splitlines()[:rows]:
        solution = json.loads(line)["answer"]
        gold = int(solution.rpartition("####")[2].replace(",", ""))
        texts = {"n": gold, "grouped": f"{gold:,}", "latex": f"{gold:,}".replace(",", "{,}"), "solution": solution}
        for form in FORMS:
            for expected in (gold, gold + 1):
                yield Case("GSM8K", str(expected), form.format(**texts), expected == gold)


def bare(gold: str) -> str:
    """The gold as verl's data sets have it."""
    return last_boxed(gold) or gold.strip().strip("$").strip()


Judge = Callable[[dict[str, Any]], bool]


def judge_ours(reading: Reading = "free", strict: bool = True) -> Judge:
    symbolic.factory()

    def judge(case: dict[str, Any]) -> bool:
        options = {} if strict else OPTIONS.get((case["gold"], case["completion"]), {})
        return ours_verify(case["gold"], case["completion"], reading=reading, **options) is Verdict.CORRECT

    return judge


def judge_math_verify() -> Judge:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    kinds = {"latex": LatexExtractionConfig(boxed_match_priority=0), "expr": ExprExtractionConfig()}

    def judge(case: dict[str, Any]) -> bool:
        targets = [kinds[name] for name in case["targets"]]
        # GSM8K's golds are bare numbers, which no LaTeX delimiter surrounds.
        gold = parse(case["gold"], targets)
        return bool(verify(gold, parse(case["completion"], targets), float_rounding=case["precision"]))

    judge({"gold": "$x+1$", "completion": "$1+x$", "targets": ["latex"], "precision": 6})
    return judge


def judge_dapo(verl: str) -> Judge:
    module = _load("math_dapo", Path(verl) / "verl/utils/reward_score/math_dapo.py")

    def judge(case: dict[str, Any]) -> bool:
        scores = (module.compute_score(case["completion"], bare(case["gold"]), strict) for strict in (False, True))
        return any(score["acc"] for score in scores)

    return judge


def judge_prime(verl: str) -> Judge:
    stand_in: Any = types.ModuleType("verl.utils.py_functional")
    stand_in.timeout_limit = lambda **_: lambda function: function  # the worker has a limit
    sys.modules |= {"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils")}
    sys.modules["verl.utils.py_functional"] = stand_in
    module = _load("prime_math", Path(verl) / "verl/utils/reward_score/prime_math/__init__.py")
    return lambda case: bool(module.compute_score(case["completion"], bare(case["gold"]))[0])


def _load(name: str, file: Path) -> Any:
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_judge(name: str, *args: Any) -> Callable[[bytes], bytes]:
    """Target of the workers: the verifier `name` as a function of bytes."""
    logging.disable(logging.WARNING)
    judge: Judge = globals()[f"judge_{name}"](*args)
    return lambda payload: b"1" if judge(json.loads(payload)) else b"0"


@dataclass
class Counts:
    """What one verifier did on one suite; times in ms."""

    right: int = 0
    found: int = 0
    wrong: int = 0
    paid: int = 0
    hangs: int = 0
    times: list[float] | None = None

    def row(self) -> dict[str, float | int | None]:
        """Recall over the right answers, precision over those that were said to be right."""
        accepted = self.found + self.paid
        times = sorted(self.times or [0.0])
        return {
            "cases": self.right + self.wrong,
            "agree": self.found + self.wrong - self.paid,
            "recall": self.found / self.right if self.right else None,
            "precision": self.found / accepted if accepted else None,
            "false positives": self.paid,
            "hangs": self.hangs,
            "ms median": statistics.median(times),
            "ms p95": times[int(0.95 * (len(times) - 1))],
        }


def run(name: str, args: list[Any], cases: list[Case], timeout_s: float) -> dict[str, Counts]:
    """Judge every case with one verifier."""
    counts: dict[str, Counts] = {}
    with KillablePool("verifiers:make_judge", args=[name, *args], workers=1, memory_mib=4096, name=name) as pool:
        pool.warm()
        payloads = [json.dumps(vars(case)).encode() for case in cases]
        for case, outcome in zip(cases, pool.map(payloads, timeout_s), strict=True):
            count = counts.setdefault(case.suite, Counts(times=[]))
            accepted = outcome.value == b"1"
            count.hangs += outcome.status in ("timeout", "crashed")
            count.right += case.is_right
            count.wrong += not case.is_right
            count.found += case.is_right and accepted
            count.paid += accepted and not case.is_right
            assert count.times is not None
            count.times.append(1000 * outcome.seconds)
            if accepted != case.is_right:
                logging.info("%s: %s %r against %r", name, case.suite, case.gold, case.completion[-200:])
    return counts


def collect(arguments: argparse.Namespace) -> list[Case]:
    """Every case of the suites that were given."""
    cases: list[Case] = []
    if arguments.math_verify:
        tests = arguments.math_verify / "tests"
        cases += read_cases("math-verify", tests / "test_all.py")
        for name in ("numina_cases", "open_thoughts", "boxed"):
            cases += read_cases("math-verify, other files", tests / f"test_{name}.py")
    else:
        copied = json.loads(MATH_VERIFY_CASES.read_bytes())["cases"]
        cases += [Case("math-verify", case["gold"], case["completion"], case["is_right"]) for case in copied]
    if arguments.lighteval:
        file = arguments.lighteval / "tests/unit/metrics/test_extractive_match.py"
        cases += [case for case in read_cases("lighteval", file) if "NativeLetters" not in case.targets]
    if arguments.verl:
        file = arguments.verl / "tests/utils/reward_score/test_sandbox_on_cpu.py"
        names = {"prime_math_answers": [], "prime_math_gts": []}
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names:
                names[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
        pairs = zip(*names.values(), strict=True)
        cases += [Case("prime_math", f"${gold}$", f"${answer}$", True) for answer, gold in pairs]
    cases += dict.fromkeys(wrong_cases(cases))
    for file in arguments.gsm8k:
        cases += dict.fromkeys(gsm8k_cases(file, arguments.rows))
    cases += [Case("hostile", "$x + 42$", rf"\boxed{{{answer}}}", False) for answer in HOSTILE]
    return cases


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--math-verify", type=folder, metavar="DIR", help="checkout of huggingface/Math-Verify")
    parser.add_argument("--lighteval", type=folder, metavar="DIR", help="checkout of huggingface/lighteval")
    parser.add_argument("--verl", type=folder, metavar="DIR", help="checkout of volcengine/verl")
    parser.add_argument(
        "--gsm8k", type=file, nargs="*", metavar="FILE", default=[], help="files of GSM8K, {question, answer}"
    )
    parser.add_argument("--rows", type=count, default=200, help="rows of each of these files")
    parser.add_argument("--timeout", type=positive, default=10.0, help="seconds after which a verification is a hang")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--disagreements", action="store_true", help="print every case that a verifier gets wrong")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO if arguments.disagreements else logging.WARNING, format="%(message)s")
    sys.path.insert(0, str(Path(__file__).parent))  # the workers import this file

    verifiers: dict[str, tuple[str, list[Any]]] = {
        "ours, free": ("ours", []),
        "ours, marked": ("ours", ["marked"]),
        "ours, options": ("ours", ["free", False]),
        "math-verify": ("math_verify", []),
    }
    if arguments.verl:
        verifiers |= {"math_dapo": ("dapo", [str(arguments.verl)]), "prime_math": ("prime", [str(arguments.verl)])}
    cases = collect(arguments)
    report = {
        label: {suite: counts.row() for suite, counts in run(name, args, cases, arguments.timeout).items()}
        for label, (name, args) in verifiers.items()
    }
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    for suite in dict.fromkeys(case.suite for case in cases):
        print(suite)
        for label, rows in report.items():
            values = (f"{key} {'-' if value is None else round(value, 4)}" for key, value in rows[suite].items())
            print(textwrap.fill(f"  {label:14} {', '.join(values)}", 80, subsequent_indent=" " * 17))


if __name__ == "__main__":
    main()
