"""Migration of configurations to another release of their framework."""
