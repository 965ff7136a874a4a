"""The files of a run that training can be taken up from. No torch: listing and checking them is instant."""

from __future__ import annotations

from grpo_core.checkpoints.checksums import CHECKSUMS, FORMAT_VERSION
from grpo_core.checkpoints.names import Step
from grpo_core.checkpoints.store import CheckpointStore
from grpo_sdk.errors import CheckpointError, CheckpointWriteError
from grpo_sdk.files import read_json, sha256_of, write_json
from grpo_sdk.records.run_folder import check_run, evaluation_dir, is_run, run_of

__all__ = [
    "CHECKSUMS",
    "FORMAT_VERSION",
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWriteError",
    "Step",
    "check_run",
    "evaluation_dir",
    "is_run",
    "read_json",
    "run_of",
    "sha256_of",
    "write_json",
]
