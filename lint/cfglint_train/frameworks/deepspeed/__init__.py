"""DeepSpeed configurations (JSON)."""
