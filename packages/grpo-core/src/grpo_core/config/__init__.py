"""Configuration: one definition (`models`) for YAML files, the environment, the command line and the documentation."""

from __future__ import annotations

from grpo_core.config.layers import LoadedConfig, Source, flatten
from grpo_core.config.models import (
    CurriculumConfig,
    EngineConfig,
    EvalConfig,
    LoraConfig,
    RunConfig,
    ScoringConfig,
    TrackingConfig,
)
from grpo_core.config.resolution import ResolvedConfig, choose_model, resolve
from grpo_core.config.sources import Profile, load_config, to_yaml, with_settings
from grpo_core.config.trainer import TrainerConfig
from grpo_sdk.environment import read_dotenv

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
    "Source",
    "TrackingConfig",
    "TrainerConfig",
    "choose_model",
    "flatten",
    "load_config",
    "read_dotenv",
    "resolve",
    "to_yaml",
    "with_settings",
]
