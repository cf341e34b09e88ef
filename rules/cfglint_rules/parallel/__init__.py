"""PAR rules: parallelism."""
