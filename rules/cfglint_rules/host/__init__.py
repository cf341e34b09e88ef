"""HST rules: host memory."""
