"""OpenRLHF: command lines in shell scripts."""
