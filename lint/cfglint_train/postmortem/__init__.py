"""Explanations of runs that ran out of memory: the log's messages beside the estimate."""
