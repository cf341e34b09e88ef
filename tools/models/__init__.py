"""Generator of the catalogue: `python -m tools.models`. Needs torch and transformers."""
