"""SYN rules: the text itself."""
