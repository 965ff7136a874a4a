# Sourced by each finding. Makes a temporary folder, $work, that is removed at the end.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONWARNINGS=ignore TOKENIZERS_PARALLELISM=false
# Nothing is fetched or sent while a finding runs, and no settings of the user are read.
export HF_HUB_OFFLINE=1 HF_HOME=$work/huggingface WANDB_MODE=offline DO_NOT_TRACK=1
unset PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONSTARTUP

# venv PACKAGE==VERSION …: an environment in $work/venv with these packages.
venv() {
    if ! { "${PYTHON:-python3}" -m venv "$work/venv" && "$work/venv/bin/python" -m pip install --quiet "$@"; }; then
        echo "could not install: $*" >&2
        exit 75
    fi
}

# run [ARGUMENT …]: the Python program on standard input, in $work.
run() {
    cat >"$work/program.py"
    (cd "$work" && venv/bin/python program.py "$@")
}
