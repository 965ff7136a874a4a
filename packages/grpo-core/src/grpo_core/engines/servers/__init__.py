"""Servers that sample: vLLM and SGLang, of the run's own or running already."""
