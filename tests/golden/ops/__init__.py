"""Every operation of the golden cases: name -> (decoded inputs, dtype) -> results by name."""

from ops import advantages, corrections, diagnostics, kl, losses

OPERATIONS = {
    **advantages.OPERATIONS,
    **corrections.OPERATIONS,
    **diagnostics.OPERATIONS,
    **kl.OPERATIONS,
    **losses.OPERATIONS,
}
