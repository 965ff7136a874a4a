# Starts a run in a tmux session. The lines before set folder, session and, as arguments, the words after grpo.
{
  set -euo pipefail
  mkdir -p -- "$folder"
  cd -- "$folder"
  here=$PWD
  export PATH="$here/.venv/bin:$HOME/.local/bin:$PATH"
  grpo=$(command -v grpo) || {
    echo "error: $(hostname) has no grpo in $here/.venv or on its PATH: install it there" >&2
    exit 1
  }
  if tmux has-session -t "=$session" 2> /dev/null; then
    echo "error: $(hostname) has a session $session already: stop it, or give this one another name by --session" >&2
    exit 1
  fi
  "$grpo" "$@" --dry-run > /dev/null
  mkdir -p -- "$session"
  { declare -p here session grpo; cat <<'END'; } > "$session/session.sh"
cd -- "$here" || exit 1
if [ "$1" = resume ]; then # of the newest run
  runs=("$session"/run_*)
  set -- resume "${runs[-1]}" "${@:2}"
else
  set -- "$@" --output-dir "$session"
fi
{
  trap : INT # Ctrl-C is for grpo, which saves the run
  "$grpo" "$@"
  echo "ended with exit code $?"
} 2>&1 | tee -i -a "$session/log"
END
  tmux new-session -d -s "$session" bash "$here/$session/session.sh" "$@"
} < /dev/null
