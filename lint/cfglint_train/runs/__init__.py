"""Runs: which job a configuration starts, according to the repository."""
