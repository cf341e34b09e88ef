"""Measurements of real training steps on a GPU."""
