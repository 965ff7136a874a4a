"""What a run wrote and who watches it: log readers, trackers, the monitor, the list of runs. No torch here."""
