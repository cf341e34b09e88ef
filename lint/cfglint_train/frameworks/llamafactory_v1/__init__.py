"""LLaMA-Factory v1 configurations (YAML)."""
