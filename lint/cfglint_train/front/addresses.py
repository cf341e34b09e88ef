"""The addresses of the project, as the installed package states them (`[project.urls]`).

Its METADATA (PEP 566) is read as the file beside the package: `importlib.metadata` takes longer to import than a file
takes to lint. A clone that is installed in place has none beside it.
"""

from __future__ import annotations

import os

from cfglint_train.foundation.typed import Final
from cfglint_train.version import VERSION

_INSTALLED: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PLACEHOLDER: Final = "OWNER"
"""The owner in the addresses until there is a real one."""


def find_address(label: str, folder: str = _INSTALLED) -> str | None:
    """The address of one kind; None where the package is not installed or the address is a placeholder."""
    path = os.path.join(folder, f"cfglint_train-{VERSION}.dist-info", "METADATA")
    field = f"Project-URL: {label}, "
    try:
        with open(path, encoding="utf-8") as file:
            url = next((line.removeprefix(field).strip() for line in file if line.startswith(field)), None)
    except OSError:
        return None
    return None if url is None or _PLACEHOLDER in url else url


def find_rule_pages(folder: str = _INSTALLED) -> str | None:
    """Where the site of the documentation has the pages of rules."""
    site = find_address("Documentation", folder)
    return None if site is None else f"{site.rstrip('/')}/rules/{{code}}/"
