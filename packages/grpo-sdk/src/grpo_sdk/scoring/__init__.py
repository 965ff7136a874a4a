"""Scores from killable worker processes, and what to do when too many are missing.

Every worker imports this package for its `wire`: it imports nothing by itself.
"""
