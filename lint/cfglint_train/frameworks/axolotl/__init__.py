"""axolotl configurations (YAML)."""
