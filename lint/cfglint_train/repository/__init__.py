"""The repository: its files and their contents."""
