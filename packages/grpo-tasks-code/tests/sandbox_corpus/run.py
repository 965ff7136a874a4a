"""Runs a corpus at a level, in private namespaces, and prints what leaked as JSON: `python run.py attacks L3 [NAME …]`.

A sandbox that fails must not harm the machine that tests it. So this process first leaves for namespaces of its own,
where every file system is read-only and the only network is its own loopback, if the machine allows it.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpo_tasks_code
from grpo_tasks_code.sandbox import Sandbox, arguments
from grpo_tasks_code.sandbox.inside import kernel, users
from grpo_tasks_code.sandbox.inside.syscalls import required

HERE = Path(__file__).parent
SCRATCH = "/mnt"
"""Where private namespaces have a writable folder; not /tmp, where this package may lie."""
WORKERS = 4
ONLY = frozenset(sys.argv[3:])
"""Names to choose; by default all."""
SECRET = "5d41402abc4b2a76"
SHORT_S, LONG_S = 0.6, 30.0
"""Limits of attacks that are to run out of time, and of the others, which a busy machine may slow down."""
CPU_OVERHEAD_S, OVERHEAD_S = 3.0, 12.0
"""Beyond a program's limit: on the processor, and by the clock, where others take time from it on a busy machine."""
PATIENCE_S = 60.0
"""A machine that is busy with other tests delays a verdict, and does not change it."""
MEMORY_MIB = 256
INTERPRETER_MIB = 150
"""Memory of a program's process beyond what it was allowed: Python, and what was preloaded."""

PROBE = """
import builtins, json, os, random, sys
folders = ("/tmp", "/dev/shm") if LEVEL == "L3" else ()
found = [os.listdir(each) for each in folders if os.path.exists(each) and os.listdir(each)]
marks = [hasattr(each, "left") for each in (json, builtins, sys)] + ["LEFT" in os.environ]
marks.append(random.random() == 0.8444218515250481)  # the first after random.seed(0)
print("clean" if not found and not any(marks) else ("left", found, marks))
"""

CALL = 'import ctypes\nprint("LEAK" if ctypes.CDLL(None).{} >= 0 else "")'

ANSWER_TESTS = ["assert answer(3) == 7", "assert answer(100) == 201", "assert answer(1000000) == 2000001"]


Entries = dict[str, dict[str, Any]]
Leaks = list[tuple[str, str]]
"""Names, and what went wrong."""
Check = Callable[[Sandbox, str, dict[str, Any]], Iterator[object]]
"""Runs an entry in a sandbox, and gives what went wrong."""


def load(*names: str) -> Entries:
    entries: Entries = {}
    for name in names:
        entries |= tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    for entry in entries.values():
        if "call" in entry:  # of the C library, which ends its program
            entry.update(code=CALL.format(entry["call"]), status=["denied"])
    return {name: entry for name, entry in entries.items() if not ONLY or name in ONLY}


def isolate() -> bool:
    """Go on in a child in private namespaces; False where that is not allowed."""
    machine = platform.machine()
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    uid, gid = os.getuid(), os.getgid()
    if machine not in ("x86_64", "aarch64"):
        return False
    try:
        if uid != 0:
            flags |= kernel.CLONE_NEWUSER
        kernel.syscall(required("unshare", machine), flags, what="unshare")
        if uid != 0:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return False
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL), "parent-death signal")
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    read_only = struct.pack("QQQQ", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY
    with contextlib.suppress(OSError):  # Linux 5.12
        kernel.syscall(
            required("mount_setattr", machine), -100 % (1 << 64), b"/", 0x8000, read_only, 32, what="read-only"
        )
    kernel.mount("proc", "/proc", "proc", 0)
    kernel.mount("tmpfs", SCRATCH, "tmpfs", 0, "size=64m")
    tempfile.tempdir = SCRATCH
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16m,mode=1777")
    with socket.socket() as any_socket:  # SIOCSIFFLAGS, IFF_UP
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))
    return True


@contextlib.contextmanager
def surroundings(leaks: Leaks) -> Iterator[dict[str, Any]]:
    """Sockets that listen and a process of the sandbox's user; what they notice is a leak."""
    becomes_nobody = os.getuid() == 0 and users.exists(users.NOBODY)  # as programs do
    user: dict[str, Any] = {"user": users.NOBODY, "group": users.NOBODY, "extra_groups": []} if becomes_nobody else {}
    victim = subprocess.Popen(["sleep", "600"], **user)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o755)
        tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        named, abstract = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        path, name = f"{folder}/socket", f"grpo-bait-{os.getpid()}"
        named.bind(path)
        os.chmod(path, 0o777)
        abstract.bind(f"\0{name}")
        listeners = {"tcp": tcp, "udp": udp, "unix socket": named, "abstract socket": abstract}
        for listener in listeners.values():
            listener.setblocking(False)
            stack.callback(listener.close)
        yield {
            "victim": victim.pid,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "socket": path,
            "abstract": name,
            "source": str(Path(grpo_tasks_code.__file__).parent),
            "base": folder,
        }
        for what, listener in listeners.items():
            with contextlib.suppress(BlockingIOError):
                leaks.append((what, f"heard {listener.accept() if listener is tcp else listener.recv(99)}"))
    if victim.poll() is not None:
        leaks.append(("victim", f"ended with {victim.returncode}"))
    victim.kill()
    victim.wait()


def bait(base: str, name: str) -> tuple[Path, Path]:
    """A secret file and a folder, open to everyone, for one attack."""
    place = Path(base, name)
    folder = place / "folder"
    folder.mkdir(parents=True)
    secret = place / "secret"
    secret.write_text(SECRET)
    for each, mode in ((place, 0o777), (folder, 0o777), (secret, 0o666)):
        each.chmod(mode)
    return secret, folder


def picture(place: Path) -> list[tuple[Any, ...]]:
    return sorted(
        (str(each), each.lstat().st_mode, each.lstat().st_size, each.lstat().st_mtime_ns, each.lstat().st_ino)
        for each in (place, *place.rglob("*"))
    )


def attack(level: str, around: dict[str, Any], sandbox: Sandbox, name: str, entry: dict[str, Any]) -> Iterator[object]:
    secret, folder = bait(around["base"], name)
    before = picture(secret.parent)
    code = entry["code"]
    for each, value in {**around, "secret": secret, "folder": folder}.items():
        code = code.replace("{" + each + "}", str(value))
    expected = entry.get("status")
    is_endless = "while True" in code if expected is None else "timeout" in expected
    timeout_s = SHORT_S if is_endless else LONG_S
    ran = sandbox.run(code, timeout_s=timeout_s, memory_mib=MEMORY_MIB)
    after = sandbox.run(f"LEVEL = {level!r}\n{PROBE}", timeout_s=LONG_S)
    told = f"{ran.status} {ran.stdout[-200:]!r} {ran.stderr[-300:]!r}"
    if "LEAK" in ran.stdout or SECRET in ran.stdout + ran.stderr or ran.status == "sandbox_error":
        yield told
    if expected is not None and ran.status not in expected:
        yield f"expected {expected}: {told}"
    if ran.cpu_s > timeout_s + CPU_OVERHEAD_S or ran.wall_s > timeout_s + OVERHEAD_S:
        yield f"ran for {ran.wall_s:.1f} s, {ran.cpu_s:.1f} s on the processor"
    if picture(secret.parent) != before:
        yield "changed its bait"
    if after.stdout != "clean\n":
        yield f"the next program finds {after}"
    shutil.rmtree(secret.parent)


def hack(sandbox: Sandbox, name: str, entry: dict[str, Any]) -> Iterator[object]:
    tests = entry.get("tests", ANSWER_TESTS)
    is_slow = "while True" in entry["code"] or name == "return_colliding_numbers"
    options = {key: entry[key] for key in ("setup", "entry_point") if key in entry}
    result = sandbox.run_tests(entry["code"], tests, SHORT_S if is_slow else LONG_S, **options)
    wanted = len(tests) if name == "honest" else 0
    if result.passed != wanted or "sandbox_error" in result.statuses or len(result.per_test) != len(tests):
        yield result


def tested(sandbox: Sandbox, name: str, entry: dict[str, Any]) -> Iterator[object]:
    result = sandbox.run_tests(entry["code"], entry["tests"], LONG_S, setup=entry.get("setup", ""))
    for test, status, reason in zip(entry["tests"], result.statuses, result.reasons, strict=True):
        if status != "passed":
            yield test, status, reason


def program(sandbox: Sandbox, name: str, entry: dict[str, Any]) -> Iterator[object]:
    if entry.get("needs") == "zoneinfo" and not Path("/usr/share/zoneinfo/Europe/Berlin").exists():
        return
    ran = sandbox.run(entry["code"], entry.get("stdin", ""), LONG_S, MEMORY_MIB)
    said = re.sub(r"^ *~+\^+\n", "", ran.stderr, flags=re.MULTILINE)  # marks of a call, from Python 3.13 on
    found = {"status": ran.status, "stdout": ran.stdout, "stderr": said, "lines": ran.stdout.count("\n")}
    wanted = {**found, "status": "ok", **{key: entry[key] for key in found if key in entry}}
    if found != wanted:
        yield ran, wanted


def run_each(level: str, entries: Entries, check: Check) -> Leaks:
    """Checks entries, each worker in a sandbox of its own, so that what runs next there can look for traces."""
    items, leaks = [*entries.items()], Leaks()

    def work(index: int) -> None:
        with Sandbox(level, workers=1) as sandbox:
            for name, entry in items[index::WORKERS]:
                leaks.extend((name, f"{what}"[:600]) for what in check(sandbox, name, entry))

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(work, range(WORKERS)))
    return leaks


def run_attacks(level: str) -> tuple[int, Leaks]:
    attacks = load("attacks_files", "attacks_processes", "attacks_kernel", "attacks_resources")
    if platform.machine() != "x86_64":  # the numbers in them are that one's
        attacks = {name: entry for name, entry in attacks.items() if "syscall(" not in entry["code"]}
    # Those that run out of time first, so that the workers end together.
    order = dict(sorted(attacks.items(), key=lambda item: "timeout" not in item[1].get("status", ())))
    leaks = Leaks()
    with surroundings(leaks) as around:
        leaks += run_each(level, order, partial(attack, level, around))
    used_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    if used_mib > MEMORY_MIB + INTERPRETER_MIB:
        leaks.append(("memory", f"a program used {used_mib} MiB"))
    return len(attacks), leaks


def run(kind: str, level: str) -> tuple[int, Leaks]:
    """How many entries there are, or tests of them, and what went wrong."""
    if kind == "attacks":
        return run_attacks(level)
    if kind == "hacks":
        honest = {} if ONLY else {"honest": {"code": "def answer(n): return 2 * n + 1"}}
        hacks = honest | load("hacks", "hacks_of_tests")
        return len(hacks), run_each(level, hacks, hack)
    if kind == "tested":
        entries = load("tests_of_honest_programs")
        return sum(len(entry["tests"]) for entry in entries.values()), run_each(level, entries, tested)
    programs = {name: entry for name, entry in load("programs").items() if level in entry.get("levels", [level])}
    return len(programs), run_each(level, programs, program)


def main() -> None:
    kind, level = sys.argv[1:3]
    arguments.PATIENCE_S = PATIENCE_S
    is_isolated = isolate()
    count, leaks = run(kind, level)
    left = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()] if is_isolated else []
    if left:
        leaks.append(("processes", f"still there: {left}"))
    print(json.dumps({"is_isolated": is_isolated, "count": count, "leaks": leaks}))


if __name__ == "__main__":
    main()
