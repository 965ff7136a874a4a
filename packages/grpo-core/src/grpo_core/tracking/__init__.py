"""Observers and logs of a run: log readers, trackers, the monitor, the list of runs. Imports no torch."""
