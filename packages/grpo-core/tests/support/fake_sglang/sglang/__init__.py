"""Stands in for SGLang where a test starts a server: the engine imports nothing of it."""
