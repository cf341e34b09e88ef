"""Reports: findings as text, JSON, annotations and other formats."""
