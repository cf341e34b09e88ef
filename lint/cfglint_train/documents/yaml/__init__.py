"""YAML as documents: positions from PyYAML's C parser, values as the framework's own loader types them."""
