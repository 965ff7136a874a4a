"""The Hugging Face hub: whether it can be used, and what of it is in the cache."""
