"""Location of the upstream example configurations, which are read in place and never copied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("CFGLINT_SHARED", REPOSITORY.parent / "shared"))
CORPUS = Path(os.environ.get("CFGLINT_CORPUS", SHARED / "corpus"))

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"no shared data: no upstream examples at {CORPUS} (set CFGLINT_CORPUS)"
)


def list_corpus_files(*suffixes: str, under: str = "") -> list[Path]:
    """Return the corpus files with one of the suffixes, sorted; empty if there is no corpus."""
    folder = CORPUS / under
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes)
