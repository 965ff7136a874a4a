"""`grpo report`: runs as one HTML file, or live in a browser of this machine."""
