"""Servers that sample: vLLM, of the run's own or running already."""
