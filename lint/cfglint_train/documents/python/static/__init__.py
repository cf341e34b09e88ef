"""Static evaluation of Python scripts, as far as a value can be determined without running them."""
