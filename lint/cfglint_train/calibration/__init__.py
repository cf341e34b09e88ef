"""Calibration of the memory model: evidence rows, comparison, fitting, report."""
