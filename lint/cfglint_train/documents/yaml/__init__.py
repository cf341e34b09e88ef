"""YAML as documents: positions from the lines of a plain text, else from PyYAML's C parser; values as the framework's
own loader types them.
"""
