"""User options for models that cfglint does not know: `--model-config FILE` and `--online`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Any
from cfglint_train.models import online as hub
from cfglint_train.models.local import UnreadableModelError, load_config


def load_user_config(path: str | os.PathLike[str] | None, online: bool) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the parsed `config.json` at `path` (None without a path), and whether the Hub may be queried.

    Raise `UsageError` if the file is missing or broken, if cfglint cannot count the model's parameters, or if `online`
    needs a package that is not installed.
    """
    if online and not hub.is_available():
        raise UsageError(hub.REMEDY)
    if path is None:
        return None, online
    try:
        return load_config(os.fspath(path)), online
    except UnreadableModelError as error:
        raise UsageError(f"--model-config {error}") from None
