import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host.shell import PATH, BoxFile, ShellBox, ShellRun, shell_level


@pytest.fixture(scope="module")
def box() -> Iterator[ShellBox]:
    with ShellBox(["/app"], storage_bytes=32 << 20) as box:
        yield box


def bash(box: ShellBox, script: str, timeout_s: float = 20.0, output_bytes: int = 1 << 16) -> ShellRun:
    command = ["/bin/bash", "-c", script]
    return box.run(command, folder="/app", environment={"PATH": PATH}, timeout_s=timeout_s, output_bytes=output_bytes)


def test_the_level_is_chosen_by_attack() -> None:
    assert (shell_level().name, shell_level().title) == ("L3", "namespaces")
    assert "withstood attack" in shell_level().reason


def test_commands_run_and_their_files_stay(box: ShellBox) -> None:
    files = {"in/a.txt": BoxFile(b"one\n"), "empty": BoxFile(None), "run": BoxFile(b"#!/bin/sh\n", True)}
    box.put({f"/app/{path}": file for path, file in files.items()})
    run = bash(box, "cat in/a.txt; ./run && ls -d empty; echo two >> in/a.txt; exit 3")
    assert run == ShellRun("ended", 3, "one\nempty\n")
    assert box.read("/app/in/a.txt", 100) == b"one\ntwo\n"
    assert "in" in box.list("/app")


def test_what_a_command_leaves_running_ends_with_it(box: ShellBox) -> None:
    bash(box, "setsid sleep 1000 >/dev/null 2>&1 & (setsid bash -c 'exec >&-; while :; do :; done' &) ; trap '' TERM")
    assert bash(box, "ps -eo comm=").output.split()[1:] == ["ps"]  # behind the box itself


def test_beginning_and_end_of_long_output_are_kept(box: ShellBox) -> None:
    run = bash(box, "echo first; seq 100000; echo last", output_bytes=100)
    assert (run.status, run.code) == ("ended", 0)
    assert run.output.startswith("first\n1\n2\n") and run.output.endswith("\n100000\nlast\n")
    assert bash(box, "printf 12345", output_bytes=4).output == "12\n[1 bytes]\n45"
    assert bash(box, "printf 1234", output_bytes=4).output == "1234"


def test_what_a_command_sees_of_this_machine(box: ShellBox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("bait", encoding="utf-8")
    run = bash(
        box,
        f"cat {tmp_path}/secret /etc/shadow; ls {os.environ.get('HOME', '/root')}/.ssh /home /proc/{os.getpid()}/root "
        f"/work; cat /proc/1/environ; tr '\\0' ' ' < /proc/1/cmdline; echo; touch /usr/x /x; id -u; hostname",
    )
    lines = [line.strip() for line in run.output.splitlines() if not line.startswith(("cat:", "ls:", "touch:"))]
    assert lines == ["", "1000", "box"]


def test_there_is_no_network_but_localhost(box: ShellBox) -> None:
    run = bash(
        box,
        'exec 2>&1; python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        "socket.create_connection(s.getsockname()); print(1)'; (: < /dev/tcp/192.0.2.1/80)",
    )
    assert run.output.startswith("1\n") and "Network is unreachable" in run.output


def test_storage_is_limited_and_a_failed_order_leaves_the_box_usable(box: ShellBox) -> None:
    assert "No space left" in bash(box, "head -c 64M /dev/zero > big; rm big").output
    with pytest.raises(ServerError, match="No space left"):
        box.put({"/app/big": BoxFile(bytes(40 << 20))})
    with pytest.raises(ServerError, match="null byte"):
        bash(box, "echo \0")
    assert bash(box, "rm -f big; echo yes").output == "yes\n"


def test_a_fresh_folder_is_empty_whatever_was_there(box: ShellBox) -> None:
    bash(box, "rm -rf /run; ln -s /app /run; mkdir -p /tests; echo 1 > /tests/x")
    box.put({"/tests/a": BoxFile(b"a")}, fresh=["/tests"])
    assert box.list("/tests") == ["a"]


def test_links_to_places_are_cut(box: ShellBox) -> None:
    bash(box, "mkdir -p d/e; ln -s ../../../tests d/e/up; ln -s /tests/a a; ln -s /testsuite b; ln -s d/e/up c")
    assert box.cut(["/tests"]) == ""
    assert bash(box, "for f in a b c d/e/up; do readlink $f; done").output == "/testsuite\n"


def test_links_are_cut_wherever_they_are(box: ShellBox) -> None:
    bash(
        box,
        "mkdir w; cd w; ln -s /tmp t; ln -s t/../tests/a through; ln -s /proc/self/cwd/../tests/a p; ln -s r r; "
        'python3 -c \'import os\nfor i in range(60): os.symlink(str(i + 1), str(i))\nos.symlink("/tests", "60")\'',
    )
    assert box.cut(["/tests", "/proc"]) == ""
    box.put({"/tests/a": BoxFile(b"answer")}, fresh=["/tests"])
    assert bash(box, "cd w; cat through p 59/a 40/a 2>/dev/null; readlink t r; cd /app; rm -r w").output == "/tmp\nr\n"
    nest = "import os\nfor _ in range(30):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\nos.symlink('/tests', 'x')"
    box.put({"/app/nest.py": BoxFile(nest.encode())})
    bash(box, "python3 nest.py")
    assert "too long" in box.cut(["/tests"])


def test_a_box_that_is_gone_is_an_infrastructure_failure() -> None:
    box = ShellBox()
    os.kill(box._process.pid, 9)
    with pytest.raises(ServerError, match="box for commands"):
        bash(box, "true")
    box.close()
    assert box._process.returncode is not None
