"""Python scripts that build training arguments, as TRL, the Trainer of transformers and OLMo-core have them."""
