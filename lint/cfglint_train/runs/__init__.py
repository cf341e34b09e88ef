"""Runs: which job a configuration starts, as far as the repository tells."""
