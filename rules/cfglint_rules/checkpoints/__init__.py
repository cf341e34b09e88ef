"""CKP rules: checkpoints."""
