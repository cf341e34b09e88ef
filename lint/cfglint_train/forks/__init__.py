"""Forks: whether the framework in use is upstream's."""
