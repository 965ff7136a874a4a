#!/usr/bin/env bash
# What: safetensors.numpy saves an array that isn't in C order as its memory lies, under the array's shape, so other
#   numbers come back.
# Versions: safetensors==0.8.0, numpy==2.3.5
# Expected: what is loaded is equal to what was saved, or save_file raises, as safetensors.torch does for a tensor that
#   isn't contiguous.
# Seen: the transpose of [[0, 1, 2], [3, 4, 5]] comes back as [[0, 1], [2, 3], [4, 5]], no error and no warning;
#   np.asfortranarray of it comes back scrambled too. safetensors.torch raises ValueError.
# Matters: weights converted with numpy (a transposed projection, an array of a Fortran library) are another
#   model; shapes, names and sums are right, so checks of them pass.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv safetensors==0.8.0 numpy==2.3.5
run <<'PYTHON'
import numpy as np
from safetensors.numpy import load_file, save_file

array = np.arange(6.0).reshape(2, 3)
for name, saved in (("transposed", array.T), ("Fortran order", np.asfortranarray(array))):
    save_file({"weight": saved}, "model.safetensors")
    loaded = load_file("model.safetensors")["weight"]
    print(name, "saved:", saved.tolist(), "loaded:", loaded.tolist())
    assert loaded.shape == saved.shape, f"{name}: the shape is {loaded.shape} now"
    assert not np.array_equal(loaded, saved), f"{name}: it comes back as it was now"
    assert loaded.sum() == saved.sum(), f"{name}: other numbers come back now"
save_file({"weight": np.ascontiguousarray(array.T)}, "model.safetensors")
assert np.array_equal(load_file("model.safetensors")["weight"], array.T), "a copy in C order is scrambled too now"
PYTHON
