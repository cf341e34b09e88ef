"""Generators of the shipped data, and measurements on GPUs; not part of the package."""
