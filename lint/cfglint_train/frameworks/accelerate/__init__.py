"""accelerate configurations (YAML)."""
