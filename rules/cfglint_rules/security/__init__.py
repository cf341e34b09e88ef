"""SEC rules: code and secrets."""
