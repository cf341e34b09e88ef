"""The repository: what files there are, and what is in them."""
