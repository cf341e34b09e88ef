"""Sources of frameworks at any release, from PyPI, for the programs in `tests/oracles`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tools.schemas.fetch import FetchError, fetch_tree

CACHE = Path(os.environ.get("CFGLINT_RELEASES", Path(tempfile.gettempdir()) / "cfglint-releases"))


def fetch_source(package: str, release: str, module: str) -> Path:
    """Return an importable folder that holds the package of a release; skip the test if PyPI is unavailable."""
    folder = CACHE / "sources" / f"{package}-{release}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            tree = fetch_tree(package, release, CACHE, module)
        except FetchError as problem:
            pytest.skip(f"{package} {release} cannot be had: {str(problem).splitlines()[-1]}")
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            for name, text in tree.files.items():
                path = Path(temporary) / "tree" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            folder.parent.mkdir(exist_ok=True)
            if not folder.is_dir():  # another process may have been faster
                (Path(temporary) / "tree").rename(folder)
    return folder
