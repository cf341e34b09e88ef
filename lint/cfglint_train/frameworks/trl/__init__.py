"""TRL: recipes for the scripts of its trainers, as YAML or as command-line options."""
