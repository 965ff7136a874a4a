"""The tasks that come with grpo-core: `core.qa`, for a file of one's own."""
