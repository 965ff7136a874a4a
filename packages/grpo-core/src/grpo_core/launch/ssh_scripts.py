"""The shell scripts that `grpo launch ssh` runs on its host. They begin in the home folder, and need bash."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join, quote

SAVE_S = 600
"""Longest wait for a run that was told to stop."""

_BEGIN = 'set -euo pipefail\nexport PATH="$HOME/.local/bin:$PATH"\n'

INSTALL_UV = "https://astral.sh/uv/install.sh"


def facts_script(folder: str, session: str) -> str:
    """Print what the host has as `name=value`: missing programs, grpo, the session's state, what is on its GPUs."""
    return f"""{_BEGIN}mkdir -p -- {quote(folder)}
cd -- {quote(folder)}
for program in tmux rsync; do
  command -v "$program" > /dev/null || echo "missing=$program"
done
if [ -x .venv/bin/grpo ]; then
  echo "grpo=$PWD/.venv/bin/grpo"
elif command -v grpo > /dev/null; then
  echo "grpo=$(command -v grpo)"
fi
if command -v tmux > /dev/null && tmux has-session -t {quote(f"={session}")} 2> /dev/null; then
  echo "session=running"
elif [ -e {quote(session)}/exit ]; then
  echo "session=$(cat {quote(session)}/exit)"
fi
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | sed 's/^/gpu=/'
  nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits | sed 's/^/process=/'
fi
"""


def check_script(folder: str, grpo: str, words: Sequence[str]) -> str:
    """Let the host's own grpo check a run before it is started."""
    return f"{_BEGIN}cd -- {quote(folder)}\n{quote(grpo)} {join([*words, '--dry-run'])} > /dev/null\n"


def run_script(folder: str, session: str, grpo: str, words: Sequence[str] | None) -> str:
    """Return the script that runs in tmux: the run with its log; it leaves the exit code.

    Args:
        folder: Working folder.
        session: Name of the session and of its folder, which receives the run and its log.
        grpo: The host's grpo.
        words: Words after it; None resumes the session's newest run.
    """
    own = quote(session)
    command, before = f"{quote(grpo)} {join([*(words or ()), '--output-dir', session])}", ""
    if words is None:
        command = f'{quote(grpo)} resume "${{runs[-1]}}" "${{processes[@]}}"'
        before = f"runs=({own}/run_*)\n  read -ra processes < <(cat {own}/processes 2> /dev/null)"
    return f"""#!/bin/bash
set -uo pipefail
export PATH="$HOME/.local/bin:$PATH"
cd -- {quote(folder)} || exit 1
trap : INT # Ctrl-C is for the run, which saves itself
{{
  trap : INT
  {before if words is None else f"echo {quote(f'grpo {join(words)}')}"}
  (echo "$BASHPID" > {own}/pid && exec {command})
  code=$?
  rm -f {own}/pid
  echo "ended with exit code $code"
  exit "$code"
}} 2>&1 | tee -i -a {own}/log
echo "${{PIPESTATUS[0]}}" > {own}/exit
"""


def start_script(folder: str, session: str, grpo: str, words: Sequence[str] | None) -> str:
    """Start `run_script` in a tmux session of its own; fails with the log where the run ends at once."""
    own = quote(session)
    processes = words[words.index("--nproc") :][:2] if words and "--nproc" in words else []
    keep = "" if words is None else f"echo {quote(join(processes))} > {own}/processes\n"  # for a resume
    check = f"""compgen -G {own}/'run_*' > /dev/null || {{
  echo {quote(f"error: nothing to resume: there is no run in {folder}/{session}")} >&2
  exit 1
}}
"""
    return f"""{_BEGIN}cd -- {quote(folder)}
{check if words is None else ""}mkdir -p -- {own}
{keep}rm -f {own}/exit
cat > {own}/run.sh <<'END_OF_RUN'
{run_script(folder, session, grpo, words)}END_OF_RUN
tmux new-session -d -s {own} -c "$HOME" bash {quote(f"{folder}/{session}/run.sh")}
sleep 1
if ! tmux has-session -t {quote(f"={session}")} 2> /dev/null && [ "$(cat {own}/exit 2> /dev/null)" != 0 ]; then
  tail -n 20 {own}/log >&2
  exit 1
fi
"""


def attach_script(session: str) -> str:
    """Open the session in the terminal."""
    target, name = (
        quote(f"={session}"),
        quote(f"error: no session {session} runs here: --tail shows the log of its last run"),
    )
    return f"""tmux has-session -t {target} 2> /dev/null || {{
  echo {name} >&2
  exit 1
}}
exec tmux attach-session -t {target}
"""


def tail_script(folder: str, session: str) -> str:
    """Follow the session's log."""
    return f"""{place_script(folder, session)}exec tail -n 100 -F -- {quote(f"{folder}/{session}/log")}
"""


def place_script(folder: str, session: str) -> str:
    """Fail where nothing was started in the session."""
    place = f"{folder}/{session}"
    return f"""[ -e {quote(f"{place}/log")} ] || {{
  echo {quote(f"error: no session {session} was started here: there is no {place}/log")} >&2
  exit 1
}}
"""


def stop_script(folder: str, session: str) -> str:
    """Stop the session's run as SIGTERM does, and wait until it is saved; prints its exit code."""
    own = quote(session)
    return f"""{_BEGIN}# Without a session, as after a restart of the host, the number in pid is another process's.
if ! cd -- {quote(folder)} 2> /dev/null ||
  ! tmux has-session -t {quote(f"={session}")} 2> /dev/null ||
  ! pid=$(cat {own}/pid 2> /dev/null); then
  echo "not running"
  exit 0
fi
# Of several processes the ranks, as torchrun would kill them 30 seconds later.
pkill -TERM --parent "$pid" -f 'grpo_core (run|resume)' || kill -TERM "$pid"
for _ in $(seq {SAVE_S}); do
  if [ -e {own}/exit ]; then
    cat {own}/exit
    exit 0
  fi
  sleep 1
done
echo "still running"
"""


def bootstrap_script(folder: str, python: str, requirements: Sequence[str]) -> str:
    """Install uv where there is none, and packages into the folder's environment."""
    return f"""{_BEGIN}mkdir -p -- {quote(folder)}
cd -- {quote(folder)}
if ! command -v uv > /dev/null; then
  curl --proto '=https' --tlsv1.2 -LsSf {INSTALL_UV} | sh
fi
[ -x .venv/bin/python ] || uv venv --quiet --python {quote(python)} .venv
uv pip install --quiet --python .venv/bin/python {join(requirements)}
.venv/bin/grpo --version
"""
