#!/usr/bin/env bash
# Runs all findings, or those named, one after another. See README.md.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${FINDING_SECONDS:-900}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

names=()
for name in "$@"; do
    name=$(basename "$name" .sh)
    if [[ ! -x $name.sh || $name == run || $name == lib ]]; then
        echo "no finding is named $name" >&2
        exit 64
    fi
    names+=("$name")
done
if [[ $# -eq 0 ]]; then
    for file in *.sh; do
        [[ $file == run.sh || $file == lib.sh ]] || names+=("${file%.sh}")
    done
fi

limit=()
command -v timeout >/dev/null && limit=(timeout --kill-after=10 "$seconds")

holds=0 changed=0 missing=0 late=0
for name in "${names[@]}"; do
    start=$SECONDS
    ${limit[@]+"${limit[@]}"} "./$name.sh" >"$log" 2>&1 </dev/null
    code=$?
    case $code in
        0) word=holds holds=$((holds + 1)) ;;
        75) word="could not install" missing=$((missing + 1)) ;;
        124 | 137) word="took too long" late=$((late + 1)) ;;
        *) word="changed" changed=$((changed + 1)) ;;
    esac
    printf '%-18s %s (%d s)\n' "$word" "$name" $((SECONDS - start))
    [[ $code -eq 0 ]] || tail -n 15 "$log" | sed 's/^/    /'
done
echo "${#names[@]} findings: $holds hold, $changed changed, $missing could not be installed, $late took too long"
[[ $changed -eq 0 ]] || exit 1
[[ $((missing + late)) -eq 0 ]] || exit 2
