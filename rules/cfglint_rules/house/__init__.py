"""HSE rules: house rules that a repository defines for itself."""
