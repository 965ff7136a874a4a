"""GPU profiles, presets and platforms as data, and how much memory a run needs."""
