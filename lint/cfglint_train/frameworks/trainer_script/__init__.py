"""Python scripts that build training arguments of TRL, the Trainer of transformers or OLMo-core."""
