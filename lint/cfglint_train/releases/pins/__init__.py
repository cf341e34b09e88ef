"""Which releases a repository's requirement files pin or allow."""
