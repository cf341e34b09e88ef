"""The smallest change that makes a run fit."""
