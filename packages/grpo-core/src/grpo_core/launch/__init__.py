"""Many runs, and runs on other machines: sweeps, SLURM, ssh and clouds."""
