"""Small generated programs whose output is known without running Python."""
