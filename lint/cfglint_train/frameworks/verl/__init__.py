"""verl: reinforcement learning from words of Hydra (`a.b=c`) on a command line, and from the user's own YAML."""
