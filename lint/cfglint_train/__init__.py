"""cfglint: finds problems of LLM training runs in their configuration files."""

__version__ = "0.1.0"
"""Hard-coded because reading it from the package metadata takes tens of milliseconds at start-up."""
