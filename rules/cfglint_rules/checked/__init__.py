"""CHK rules: what was not checked, and why."""
