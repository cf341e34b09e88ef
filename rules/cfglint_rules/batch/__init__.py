"""BAT rules: batch arithmetic."""
