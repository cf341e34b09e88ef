"""Estimates of plans from a JSON file, and of variations of a run."""
