"""The taskset `grpo-verifiers`, which verifiers finds by this name: see `grpo_sdk.interop.verifiers`."""

from grpo_sdk.interop.verifiers import GrpoEnv, GrpoTaskset

__all__ = ["GrpoEnv", "GrpoTaskset"]
