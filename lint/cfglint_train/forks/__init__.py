"""Forks: evidence that the framework in use differs from upstream."""
