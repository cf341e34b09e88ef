"""OLMo-core configurations (Python scripts and JSON)."""
