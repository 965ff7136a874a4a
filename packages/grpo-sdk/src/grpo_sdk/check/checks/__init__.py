"""The checks, a module per subject."""
