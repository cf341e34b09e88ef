"""The plan of a training job: its settings, the origin of each value, and the releases to check against."""
