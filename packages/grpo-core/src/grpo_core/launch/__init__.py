"""Starting runs on other machines: SLURM, ssh and clouds."""
