"""A plugin that contributes nothing."""
