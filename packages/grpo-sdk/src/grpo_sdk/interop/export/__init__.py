"""A task as a folder of files with which another trainer trains it: `grpo export`."""

from grpo_sdk.interop.export.folder import Cluster, export_files
from grpo_sdk.interop.export.targets import TARGETS, Target, target_of

__all__ = ["TARGETS", "Cluster", "Target", "export_files", "target_of"]
