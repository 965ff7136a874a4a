"""Runs in storage elsewhere: object stores and other folders, with checksums."""
