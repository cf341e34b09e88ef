"""MEM rules: GPU memory."""
