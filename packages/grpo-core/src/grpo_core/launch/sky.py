"""A run as a task of SkyPilot, which finds machines of clouds, prepares them and takes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import join, quote
from typing import Any

import yaml

from grpo_core.errors import UserError

BUCKETS = ("s3", "gs", "az", "r2", "cos", "oci", "nebius", "cw")
"""Kinds of buckets that SkyPilot mounts, by the scheme of their address."""

MOUNT = "/checkpoints"
"""Where the bucket is on each machine."""

SYNC_S = 60
"""Time between two copies of the run into the bucket."""

PORT = 29500
"""Of the rendezvous, on the first machine."""


@dataclass(frozen=True, slots=True)
class SkyOptions:
    """What a task asks SkyPilot for.

    Attributes:
        accelerators: Name and number of GPUs of each machine, such as `A100:8`; empty for none.
        nodes: Machines.
        processes: Processes of each machine.
        bucket: Address of a bucket, such as `s3://mine`, that keeps runs and brings them back.
        spot: Whether to take machines that may be taken away.
        resources: Further entries of `resources`, such as `infra: aws/us-east-1`.
        packages: What to install.
        name: Name of the task, and of the folder of its run, here and in the bucket.
    """

    accelerators: str = ""
    nodes: int = 1
    processes: int = 1
    bucket: str = ""
    spot: bool = False
    resources: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ("grpo-core",)
    name: str = "grpo"

    def __post_init__(self) -> None:
        """Check the bucket's address.

        Raises:
            UserError: it is none.
        """
        scheme, separator, name = self.bucket.partition("://")
        if self.bucket and (scheme not in BUCKETS or not separator or not name.strip("/")):
            listed = ", ".join(f"{each}://" for each in BUCKETS)
            raise UserError(f"--bucket {self.bucket[:80]!r}: give the address of a bucket: {listed}NAME.")


def task_yaml(words: Sequence[str], options: SkyOptions) -> str:
    """Return the task as SkyPilot's YAML.

    Args:
        words: Words after `grpo`.
        options: What it asks for.
    """
    resources: dict[str, Any] = {
        **({"accelerators": options.accelerators} if options.accelerators else {}),
        **({"use_spot": True} if options.spot else {}),
        **options.resources,
    }
    task: dict[str, Any] = {
        "name": options.name,
        **({"num_nodes": options.nodes} if options.nodes > 1 else {}),
        **({"resources": resources} if resources else {}),
        **({"file_mounts": {MOUNT: {"source": options.bucket, "mode": "MOUNT"}}} if options.bucket else {}),
        "workdir": ".",
        "setup": setup_script(options.packages),
        "run": run_script(words, options),
    }
    return yaml.dump(task, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def setup_script(packages: Sequence[str]) -> str:
    """Return what prepares each machine."""
    return f"""set -euo pipefail
command -v uv > /dev/null || curl --proto '=https' --tlsv1.2 -LsSf https://astral.sh/uv/install.sh | sh
export PATH="$HOME/.local/bin:$PATH"
[ -x ~/grpo-env/bin/python ] || uv venv --quiet --python 3.11 ~/grpo-env
uv pip install --quiet --python ~/grpo-env/bin/python {join(packages)}
"""


def run_script(words: Sequence[str], options: SkyOptions) -> str:
    """Return what each machine runs: the run, or what the bucket holds of it, by torchrun where there are several."""
    begin = f'set -euo pipefail\nruns=~/grpo-runs/{options.name}\nmkdir -p "$runs"\n'
    if options.bucket:
        begin += _bucket_part(f"{MOUNT}/{options.name}")
    return f"""{begin}words=({join(words)} --output-dir "$runs")
for run in "$runs"/run_*; do
  # The names are dates: the newest run that has saved something is resumed.
  if compgen -G "$run/training_state/step_*/checksums.json" > /dev/null; then
    words=(resume "$run" --allow hardware)
  fi
done
{_command(options)}
"""


def _bucket_part(saved: str) -> str:
    """Bring back what the bucket has, and have the first machine copy there what the run saves.

    A mounted bucket knows neither links nor renames, which checkpoints need: the run is on a disk, and copied. A
    copy that was cut off is no complete checkpoint, as its list of files says. Checkpoints that the run had deleted
    before a copy are deleted in the bucket after it, where the run still has another one: the bucket always holds one.
    The sleep holds no output open, or the task would end only with it.
    """
    return f"""saved={quote(saved)}
mkdir -p "$saved"
rsync --quiet --recursive --times "$saved/" "$runs/"
if [ "$SKYPILOT_NODE_RANK" = 0 ]; then
  copy() {{
    local old here deleted=()
    for old in "$saved"/run_*/training_state/step_*; do
      here=$runs${{old#"$saved"}}
      if [ -d "$old" ] && [ ! -e "$here" ] && compgen -G "${{here%/*}}/step_*/checksums.json" > /dev/null; then
        deleted+=("$old")
      fi
    done
    rsync --quiet --recursive --times --inplace --exclude='.*' "$runs/" "$saved/" || return 1
    if [ "${{#deleted[@]}}" -gt 0 ]; then rm -rf -- "${{deleted[@]}}"; fi
  }}
  (while sleep {SYNC_S} &> /dev/null; do copy || echo "not copied to the bucket: the next copy tries again" >&2; done) &
  copier=$!
  trap 'kill "$copier"; copy' EXIT
fi
"""


def _command(options: SkyOptions) -> str:
    if options.nodes == 1:
        several = "" if options.processes == 1 else f" --nproc {options.processes}"
        return f'~/grpo-env/bin/grpo "${{words[@]}}"{several}'
    return f"""first=$(head -n 1 <<< "$SKYPILOT_NODE_IPS")
~/grpo-env/bin/python -m torch.distributed.run \\
  --nnodes={options.nodes} \\
  --nproc-per-node={options.processes} \\
  --rdzv-backend=c10d \\
  --rdzv-endpoint="$first:{PORT}" \\
  --rdzv-id="$SKYPILOT_TASK_ID" \\
  --rdzv-conf="is_host=$((SKYPILOT_NODE_RANK == 0))" \\
  -m grpo_core "${{words[@]}}\""""


class _Dumper(yaml.SafeDumper):
    """Writes scripts as blocks, to be read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
