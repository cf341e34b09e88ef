"""YAML documents: positions from PyYAML's C parser, values typed as the framework's own loader types them."""
