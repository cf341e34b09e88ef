"""PRF rules: settings that make a run slower than necessary."""
