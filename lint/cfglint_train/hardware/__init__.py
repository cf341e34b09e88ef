"""GPUs and hosts: their memory, and how it is written."""
