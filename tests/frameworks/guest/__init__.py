"""Guest: a framework that exists only for the tests, built as docs/contributing/framework.md describes."""
