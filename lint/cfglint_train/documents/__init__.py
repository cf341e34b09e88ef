"""Documents: text to positioned tree and back, with one reader per syntax."""
