"""Python scripts that call the Trainer of transformers directly."""
