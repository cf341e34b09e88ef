"""The memory model against measurements: rows, comparison, fitting, report."""
