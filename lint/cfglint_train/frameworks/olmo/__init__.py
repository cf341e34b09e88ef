"""OLMo (v1) configurations (YAML)."""
