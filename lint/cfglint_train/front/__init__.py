"""The front end: the command line and the GitHub Action."""
