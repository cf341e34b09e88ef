"""Settings: what the user stated."""
