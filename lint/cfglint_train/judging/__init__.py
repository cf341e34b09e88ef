"""Run rules over configs and runs: grade, suppress and order their findings."""
