"""The tasks that come with grpo-sdk: `core.qa`, for a file of one's own."""
