"""Sweeps: the same run with other settings, one process each, and what comes out of it."""
