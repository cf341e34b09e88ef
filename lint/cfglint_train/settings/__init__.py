"""Settings and facts that the user states."""
