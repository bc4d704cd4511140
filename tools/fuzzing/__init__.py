"""Damaged checkpoints and recordings, and processes that try to read them."""
