"""KEY rules: keys that a framework does not have, drops or rejects."""
