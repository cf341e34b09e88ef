"""Model configurations from the Hub, for `--online`; cfglint fetches nothing else.

huggingface_hub fetches the files, so its environment applies: `HF_ENDPOINT`, `HF_TOKEN` (or a login), `HF_HOME`,
`HF_HUB_OFFLINE`, `HF_HUB_ETAG_TIMEOUT`, `HF_HUB_DOWNLOAD_TIMEOUT`, proxies. It is an optional dependency: `pip install
'cfglint-train[online]'`. Fetched files stay in the Hugging Face cache, where the next run finds them offline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.local import (
    ADAPTER,
    CONFIG,
    MAX_BYTES,
    UnreadableModelError,
    find_local_model,
    read_adapter_base,
    read_folder,
)

PACKAGE: Final = "huggingface_hub"
REMEDY: Final = "--online needs huggingface_hub: pip install 'cfglint-train[online]'"

_ID: Final = compile_on_use(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_MAX_ID_LENGTH: Final = 96
"""Length limit of a repository's name on the Hub, in characters."""


class FetchError(UnreadableModelError):
    """A failed fetch of a configuration; the message names the model, the reason and the remedy."""


def is_available() -> bool:
    """Return whether huggingface_hub is installed."""
    from importlib.util import find_spec  # imported here because only --online needs it

    return find_spec(PACKAGE) is not None


def is_hub_id(name: str) -> bool:
    """Return whether a name may be a Hub repository (`organization/name`) rather than a path."""
    return (
        _ID.fullmatch(name) is not None
        and len(name) <= _MAX_ID_LENGTH
        and ".." not in name
        and not name.endswith(".git")
    )


_LOG_IN: Final = "log in (hf auth login, or HF_TOKEN)"

_fetched: dict[tuple[str, str], str | FetchError] = {}
"""(name, revision) -> snapshot folder or error, so that each repository is requested once per process."""


def fetch_architecture(
    name: str,
    revision: str | None,
    overrides: Mapping[str, Any] | None = None,
    allowed_folders: tuple[str, ...] | None = None,
) -> Architecture | None:
    """Return the architecture of a Hub repository, or None if cfglint cannot count its parameters.

    A LoRA repository yields its base model, which is read from a local folder only inside `allowed_folders`. Raise
    `FetchError` if the fetch fails, and `UnreadableModelError` if the fetched file is not a model configuration.
    """
    folder = _fetch_folder(name, revision or "main")
    base = _read_base(folder)
    if base is not None:
        architecture = find_local_model(base, folder, None, overrides, allowed_folders=allowed_folders)
        if architecture is None and is_hub_id(base) and base != name:
            architecture = read_folder(_fetch_folder(base, "main"), overrides)
    else:
        architecture = read_folder(folder, overrides)
    return architecture and architecture._replace(id=name)


def _fetch_folder(name: str, revision: str) -> str:
    """Return the snapshot's folder, or raise `FetchError` if it cannot be fetched."""
    key = name, revision
    if key not in _fetched:
        try:
            _fetched[key] = _download(name, revision)
        except FetchError as error:
            _fetched[key] = error
    result = _fetched[key]
    if isinstance(result, FetchError):
        raise result
    return result


def _download(name: str, revision: str) -> str:
    """Fetch a configuration into the cache and return its folder.

    The metadata are requested first, because that request has a time limit, does not retry, and returns the size. Raise
    `FetchError` if the repository has no model configuration, or one that is too large.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants, errors
    except ImportError as error:
        raise FetchError(f"{name}: {REMEDY} ({error})") from None
    hub.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    for file in (CONFIG, ADAPTER):
        url = hub.hf_hub_url(name, file, revision=revision)
        try:
            size = hub.get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT, library_name="cfglint").size
            if size is not None and size > MAX_BYTES:
                raise FetchError(f"{name}: its {file} has {size} bytes, which is too large for a model configuration")
            return os.path.dirname(hub.hf_hub_download(name, file, revision=revision, library_name="cfglint"))
        except errors.EntryNotFoundError:
            continue
        except FetchError:
            raise
        except Exception as error:  # errors of huggingface_hub, of its HTTP library or of the file system
            raise FetchError(f"{name}: {_explain_error(error, revision)}") from None
    raise FetchError(f"{name}: it has no {CONFIG}, so it is not a transformers model")


def _explain_error(error: Exception, revision: str) -> str:
    """Return the reason for a failed fetch, with the remedy if there is one.

    Errors are recognized by class name, because huggingface_hub moves the classes between releases.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return f"access to it is restricted; request access on the Hub, then {_LOG_IN}"
    if "RevisionNotFoundError" in kinds:
        return f"the Hub has no revision {revision} of this model"
    if "RepositoryNotFoundError" in kinds:
        return f"the Hub has no such model, or it is private; check the name, or {_LOG_IN}"
    if "OfflineModeIsEnabled" in kinds:
        return "HF_HUB_OFFLINE is set and the model is not in the cache; unset it or drop --online"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if kinds & {"TimeoutException", "Timeout", "TransportError", "ConnectionError"}:
        reason = f"{type(error).__name__}: {_get_first_line(error)}"
        return f"{endpoint} does not answer ({reason}), and the model is not in the cache"
    response = getattr(error, "response", None)
    if response is not None:
        return f"{endpoint} answers {response.status_code}"
    return f"{type(error).__name__}: {_get_first_line(error)}"


def _get_first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _read_base(folder: str) -> str | None:
    """Return the base model of a folder that holds only an adapter's configuration, or None for any other folder."""
    if os.path.isfile(os.path.join(folder, CONFIG)):
        return None
    return read_adapter_base(folder)
