"""Python documents: scripts, read statically."""
