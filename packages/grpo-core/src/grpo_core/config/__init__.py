"""Configuration: one definition (`models`) for YAML files, the environment, the command line and the documentation."""

from __future__ import annotations

from grpo_core.config.layers import LoadedConfig, Settings, Source, flatten
from grpo_core.config.models import (
    CurriculumConfig,
    EngineConfig,
    EvalConfig,
    LoraConfig,
    RunConfig,
    ScoringConfig,
    TrackingConfig,
)
from grpo_core.config.resolution import ResolvedConfig, resolve
from grpo_core.config.sources import Profile, load_config, read_config, to_yaml, with_settings
from grpo_core.config.trainer import TrainerConfig

__all__ = [
    "CurriculumConfig",
    "EngineConfig",
    "EvalConfig",
    "LoadedConfig",
    "LoraConfig",
    "Profile",
    "ResolvedConfig",
    "RunConfig",
    "ScoringConfig",
    "Settings",
    "Source",
    "TrackingConfig",
    "TrainerConfig",
    "flatten",
    "load_config",
    "read_config",
    "resolve",
    "to_yaml",
    "with_settings",
]
