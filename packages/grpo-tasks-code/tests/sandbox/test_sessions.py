"""The tools `python` and `shell` in tasks: state, results, limits, attacks, repetition, and the end of processes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from waiting import eventually

from grpo_sdk import InfrastructureError, Scorer, ToolError, UserError
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall, ToolTurn, write_tool_turns
from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sessions import PythonSession, ShellSession

PROGRAMS = Path(__file__).parent / "programs"
TASKS = PROGRAMS / "session_tasks.py"


class QuickPython(PythonSession):
    timeout_s = 1.0
    memory_mib = 256


class QuickShell(ShellSession):
    timeout_s = 1.0
    memory_mib = 256
    storage_mib = 32


@pytest.fixture(scope="module")
def python(sandbox: Sandbox) -> Iterator[Callable[[str], str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_tasks_code.sessions.default_executor", lambda: sandbox)
        session = QuickPython()
        session.python("1")
    yield session.python
    session.close()


@pytest.fixture(scope="module")
def shell() -> Iterator[QuickShell]:
    session = QuickShell()
    yield session
    session.close()


def failure(call: Callable[[str], str], code: str) -> str:
    with pytest.raises(ToolError) as caught:
        call(code)
    return str(caught.value)


def play(session: ToolSession, tool: str, *codes: str) -> list[ToolTurn]:
    """An episode in which each turn calls a tool once."""
    session.begin().result()
    turns: Sequence[ToolTurn] = ()
    key = {"python": "code", "shell": "command"}[tool]
    for code in codes:
        reading = Reading("", calls=(ToolCall(tool, {key: code}),))
        state = session.answer(turns, "", reading, "prompt").result()
        assert not state.fault, state.why
        turns = state.moves
    return list(turns)


def results(turns: Sequence[ToolTurn]) -> list[str]:
    return [call.result for turn in turns for call in turn.calls]


def test_a_problem_is_solved_with_variables_that_stay_in_their_episode() -> None:
    with Scorer(f"{TASKS}:SUMS", workers=1, tool_workers=1) as scorer:
        row = scorer.task.rows()[0]
        session = scorer.session(row)
        turns = play(session, "python", "total = sum(numbers)\ntotal", "total *= 2", "print(f'{total=}')")
        assert results(turns) == ["6", "", "total=12"]
        text = write_tool_turns([*turns, ToolTurn("It is 12.")])
        live = session.score(text).result()
        assert (live.value, live.solved) == (1.0, True), live.why
        assert scorer.score([text], [row]) == [live], "repeating the calls gives the same state"
        said = write_tool_turns([ToolTurn("", (Call("python", {"code": "total = 7"}, "12", ok=True),)), ToolTurn("12")])
        assert scorer.score([said], [row])[0].why == "repeating the calls: python() of turn 1 gave '', not '12'"
        assert {*scorer.task.conditions} == {"python"}

        codes = ("mine = {'a', 'b', 'c'}", "mine, hash('a')", "import random; random.random()", "object()", "1 / 0")
        turns = play(scorer.session(row), "python", *codes)
        assert results(turns)[3] == "<object object at 0x…>"
        assert "NameError: name 'mine'" in results(play(scorer.session(row), "python", "mine"))[0]
        assert scorer.score([write_tool_turns([*turns, ToolTurn("12")])], [row])[0].solved


def test_a_problem_is_solved_with_files_that_stay() -> None:
    with Scorer(f"{TASKS}:FILES", workers=1, tool_workers=1) as scorer:
        row = scorer.task.rows()[0]
        session = scorer.session(row)
        turns = play(
            session, "shell", "ls in", "cat in/* | paste -sd+ | tee sum", "echo $(( 2 * ($(cat sum)) )) > total.txt"
        )
        assert results(turns) == ["1.txt\n2.txt\n3.txt", "1+2+3", ""]
        text = write_tool_turns([*turns, ToolTurn("done")])
        live = session.score(text).result()
        assert (live.value, live.solved) == (1.0, True), live.why
        assert scorer.score([text], [row]) == [live], "repeating the calls gives the same files"
        assert "total.txt" in scorer.score([write_tool_turns([ToolTurn("12")])], [row])[0].why


def test_python_shows_what_a_console_shows(python: Callable[[str], str]) -> None:
    assert python("x = 6\nprint('six')\nx * 7") == "six\n42"
    assert python("None") == python("x = 6") == python("") == python("# nothing") == ""
    assert python("import sys\nprint('a'); sys.stderr.write('b\\n'); print('c')") == "a\nb\nc"
    assert python("class A: pass\nA.__module__") == "'__main__'"
    assert python("def f(n):\n    return 1 / n") == ""
    raised = failure(python, "print('before')\nf(0)")
    assert raised.startswith("before\nTraceback") and "return 1 / n" in raised and raised.endswith("division by zero")
    assert "SyntaxError" in failure(python, "x = (") and "null bytes" in failure(python, "\0")
    assert python("x") == "6", "an exception keeps the variables"


def test_what_is_no_text_is_escaped_and_long_output_is_cut_in_the_middle(python: Callable[[str], str]) -> None:
    assert python("_ = sys.stdout.buffer.write(b'\\xff\\x1b[1m\\t\\n')") == "\\xff\\x1b[1m\t"
    cut = python("print('a' * 50_000 + 'z')")
    assert cut.startswith("aaa") and cut.endswith("aaz") and "\n[… cut here …]\n" in cut and len(cut) < 8_100
    assert "\\udcff" in failure(python, "raise ValueError('\\udcff')")


GONE = "it starts anew, all variables are gone]"
ENDS = {
    "runs too long": ("print('begun')\nwhile True: pass", "begun\n[the interpreter was ended after 1 s"),
    "hides from signals": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, print)\n    except Exception: pass\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "after 1 s",
    ),
    "floods": ("while True: print('y' * 99)", "yyy\n[the interpreter was ended for its output of more than 1 MiB"),
    "floods stderr": ("import os\nwhile True: os.write(2, b'y' * 4096)", "for its output of more than 1 MiB"),
    "leaves": ("exit()", "[the code ended the interpreter"),
    "leaves at once": ("import os; os._exit(0)", "[the code ended the interpreter"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "[a signal ended the interpreter"),
    "closes the channel": ("import os; os.closerange(0, 99)", "the interpreter"),
    "writes rubbish to the channel": ("import os; os.write(4, b'\\xff' * 99)", "the interpreter"),
    "imitates an answer": (
        "import os, struct\ndata = b'[1,false]'\nos.write(4, struct.pack('<I', len(data)) + data)",
        "the code ended the interpreter",
    ),
    "calls what is for escaping": ("import ctypes; ctypes.CDLL(None).unshare(0x10000000)", "the interpreter"),
}
"""What ends an interpreter -> the code, and what the policy is told."""


@pytest.mark.parametrize(("code", "told"), ENDS.values(), ids=ENDS.keys())
def test_the_end_of_the_interpreter_is_told_and_another_begins(
    code: str, told: str, python: Callable[[str], str]
) -> None:
    python("kept = 1")
    said = failure(python, code)
    if "ctypes" in code and GONE not in said:  # there is no such module, or the call is refused
        assert "Error" in said
        return
    assert told in said and said.endswith(GONE)
    assert "NameError" in failure(python, "kept") and python("1 + 1") == "2"


REFUSED = {
    "forks": "import os\nwhile True: os.fork()",
    "reads the grader's memory": "import os; open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "writes outside": "open('/usr/x', 'w')",
    "connects": "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
    "takes memory": "x = [bytearray(1 << 24) for _ in range(1 << 10)]",
}
"""What fails with an exception, and leaves the interpreter as it was, unless its time is over; the corpus has more."""


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED.keys())
def test_an_attack_is_a_result(code: str, python: Callable[[str], str]) -> None:
    said = failure(python, code)
    assert "Error" in said or said.endswith(GONE)
    assert python("1 + 1") == "2"


def test_an_early_answer_is_told_to_who_wrote_it_alone(python: Callable[[str], str]) -> None:
    early = (
        "import gc, json, os, struct, sys\nframe = sys._getframe()\nwhile 'number' not in frame.f_locals: "
        "frame = frame.f_back\ndata = json.dumps([frame.f_locals['number'], False]).encode()\n"
        "os.write(4, struct.pack('<I', len(data)) + data)\nimport time; time.sleep(0.2)\nprint('late')"
    )
    assert python(early) == ""
    assert failure(python, "'mine'").endswith(GONE), "the next call has a number of its own"
    assert python("1 + 1") == "2"


def test_nothing_runs_between_calls(python: Callable[[str], str]) -> None:
    python("import threading, time\nn = 0\ndef count():\n    global n\n    while True: n += 1; time.sleep(0.01)")
    python("threading.Thread(target=count, daemon=True).start()")
    before = int(python("n"))
    time.sleep(0.5)
    assert int(python("n")) - before < 25
    assert failure(python, "exit()").endswith(GONE)


def test_the_environment_holds_nothing_of_the_grader(python: Callable[[str], str]) -> None:
    assert set(eval(python("import os; list(os.environ)"))) <= {
        "LANG", "LOGNAME", "PATH", "PYTHONHASHSEED", "HOME", "OPENBLAS_NUM_THREADS"
    }  # fmt: skip
    assert "True" not in python("import sys; ['grpo_sdk' in sys.modules, 'grpo_tasks_code' in sys.modules]")


def test_a_shell_says_how_a_command_ended(shell: QuickShell) -> None:
    assert shell.shell("echo one; cd /tmp; x=1") == "one"
    assert shell.shell("pwd; echo $x") == "/work\n"
    assert shell.shell("echo two; exit 3") == "two\n[exit code 3]" and shell.shell("kill -9 $$") == "[exit code 137]"
    assert shell.shell("printf '\\xff\\033\\t'; python3 -c 'print(object())'").startswith(
        "\\xff\\x1b\t<object object at 0x…"
    )
    endless = "echo begun; trap '' TERM INT; while :; do sleep 1; done"
    assert failure(shell.shell, endless) == "begun\n[the command was ended after 1 s; files stay]"
    assert shell.shell("env | cut -d= -f1 | sort | xargs").endswith("HOME LANG PATH PWD PYTHONHASHSEED SHLVL _")
    assert failure(shell.shell, "yes").endswith(
        "y\n[the command was ended for its output of more than 64 MiB; files stay]"
    )
    cut = shell.shell("seq 100000")
    assert cut.startswith("1\n2\n") and cut.endswith("\n100000") and "[… cut here …]" in cut and len(cut) < 8_100


def test_files_are_put_and_read(shell: QuickShell) -> None:
    shell.put({"a/b.txt": "é\n", "/tmp/raw": b"\xff"})
    assert shell.shell("cat a/b.txt; wc -c < /tmp/raw; ln -s /etc/passwd link; mkfifo pipe") == "é\n1"
    assert shell.read("a/b.txt") == "é\n".encode() and shell.read("a/b.txt", 1) == b"\xc3"
    assert shell.read("link") is shell.read("pipe") is shell.read("a") is shell.read("none") is None


SHELL_ATTACKS = {
    "forks": "bomb() { bomb | bomb & }; bomb; sleep 0.2",
    "leaves a daemon": "setsid bash -c 'exec >&- 2>&-; while :; do :; done' & disown -a; echo left",
    "replaces the script": "rm -f /run/command.sh; ln -s /etc/passwd /run/command.sh; chmod 000 /run; mv /run /old",
    "takes its folder away": "cd /; mv /work /old; rm -rf /work; chmod 000 /work",
    "writes outside": "touch /usr/x /etc/x /x; echo > /proc/1/comm; mount -t tmpfs x /work; unshare -Ur true",
    "is long": "x" * 300_000,
}


@pytest.mark.parametrize("command", SHELL_ATTACKS.values(), ids=SHELL_ATTACKS.keys())
def test_an_attack_on_the_shell_is_a_result(command: str, shell: QuickShell) -> None:
    try:
        shell.shell(command)
    except ToolError as error:
        assert str(error).endswith("files stay]")
    assert shell.shell("chmod 755 /work 2>&1; echo $((1 + 1))") == "2"
    assert shell.shell("ps -eo comm= | grep -c bash") in ("1", "2"), "nothing is left of it"


def test_what_ran_ends_with_the_episode_and_with_its_process() -> None:
    with Scorer(f"{TASKS}:SUMS", workers=1, tool_workers=1) as scorer:
        session = scorer.session(scorer.task.rows()[0])
        play(
            session,
            "python",
            "import threading; threading.Thread(target=__import__('time').sleep, args=(999,)).start()",
        )
        before = psutil.Process().children(recursive=True)
        session.score(write_tool_turns([ToolTurn("1")])).result()
        assert eventually(lambda: any(not each.is_running() for each in before)), "the interpreter has ended"
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "has_a_session.py")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "2\n"
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    assert children and eventually(lambda: not any(each.is_running() for each in children))


class Both(PythonSession, ShellSession):
    pass


def test_an_environment_may_have_both_and_begins_anew_after_its_end() -> None:
    assert {*Both.conditions()} == {"python", "shell"}
    session = Both()
    assert session.python("x = 1\nx") == session.shell("echo 1 | tee file") == "1"
    for _ in range(2):
        session.close()
    assert "NameError" in failure(session.python, "x") and session.read("file") is None
    session.close()


def test_limits_are_checked_where_they_are_written() -> None:
    with pytest.raises(UserError, match=r"Slow\.timeout_s=600"):
        type("Slow", (PythonSession,), {"timeout_s": 600})
    with pytest.raises(UserError, match=r"Small\.memory_mib=1: must be at least 64"):
        type("Small", (ShellSession,), {"memory_mib": 1})


def test_a_server_elsewhere_keeps_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_SANDBOX_URL", "http://127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="unset GRPO_SANDBOX_URL"):
        PythonSession().python("1")


def test_a_machine_without_a_level_abstains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_SANDBOX_LEVEL", "L1")
    with Scorer(f"{TASKS}:SUMS", workers=1, tool_workers=1) as scorer:
        state = scorer.session(scorer.task.rows()[0]).begin().result()
        assert state.fault == "infrastructure" and "no sandbox: L1 rlimits" in state.why
