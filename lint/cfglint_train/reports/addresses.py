"""URLs of the project, from the metadata of the installed package (`[project.urls]`).

The METADATA file (PEP 566) is read directly because importing `importlib.metadata` takes longer than linting a file. An
editable installation has no metadata next to the package.
"""

from __future__ import annotations

import os

from cfglint_train.foundation.typed import Final
from cfglint_train.version import VERSION

_INSTALLED: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PLACEHOLDER: Final = "OWNER"
"""Owner in the URLs until the project has a real owner."""


def find_address(label: str, folder: str = _INSTALLED) -> str | None:
    """Return the project URL with a label, or None if the installed metadata lacks it or it is a placeholder."""
    path = os.path.join(folder, f"cfglint_train-{VERSION}.dist-info", "METADATA")
    field = f"Project-URL: {label}, "
    try:
        with open(path, encoding="utf-8") as file:
            url = next((line.removeprefix(field).strip() for line in file if line.startswith(field)), None)
    except OSError:
        return None
    return None if url is None or _PLACEHOLDER in url else url


def choose_rule_pages(stated: str | None) -> str | None:
    """Return the URL template of the rule pages: the one of the settings, or else of the installed package.

    An empty text in the settings (`rule-url = ""`) means no links.
    """
    return find_rule_pages() if stated is None else stated or None


def find_rule_pages(folder: str = _INSTALLED) -> str | None:
    """Return the URL template of the rule pages, or None if the documentation has no URL."""
    site = find_address("Documentation", folder)
    return None if site is None else f"{site.rstrip('/')}/rules/{{code}}/"
