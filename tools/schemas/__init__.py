"""Generator of the schemas.

It reads the frameworks' definitions statically, release by release, and folds them into one file per framework.
"""
