"""Apply fixes until none is left to apply, and write the files."""
