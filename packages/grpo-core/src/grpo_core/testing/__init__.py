"""Conformance checks of tasks, and their report."""
