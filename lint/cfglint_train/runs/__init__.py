"""Runs: the training jobs that configs start."""
