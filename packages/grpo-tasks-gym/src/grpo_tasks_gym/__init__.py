"""The data sets of reasoning-gym as tasks: `reasoning_gym.leg_counting`."""
