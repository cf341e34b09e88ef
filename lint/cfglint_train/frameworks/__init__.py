"""Training frameworks: one folder each, and the modules that they share."""
