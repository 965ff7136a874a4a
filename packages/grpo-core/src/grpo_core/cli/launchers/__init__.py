"""`grpo launch`: runs on other machines."""
