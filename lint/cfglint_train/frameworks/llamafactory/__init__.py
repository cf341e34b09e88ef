"""LLaMA-Factory configurations (YAML and command lines)."""
