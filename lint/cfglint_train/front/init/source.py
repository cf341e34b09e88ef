"""Source from which the hook and the workflow install cfglint: that of this installation, or `--source`.

Installers write `direct_url.json` (PEP 610) for packages that come from a URL instead of an index.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from json import loads
from subprocess import CompletedProcess, TimeoutExpired
from urllib.parse import urlsplit, urlunsplit

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.front import git, programs
from cfglint_train.version import VERSION

PACKAGE: Final = "cfglint-train"
_HINT: Final = (
    "pass --source, for example git+https://HOST/OWNER/cfglint@COMMIT, https://HOST/cfglint_train.whl or ==X.Y.Z; "
    "--no-pre-commit --no-workflow writes only the settings"
)
PLACEHOLDER: Final = f"{PACKAGE} @ SOURCE"
"""Requirement to write if others cannot install from the source of this installation; the user must fill it in."""
_SOURCE_PATTERN: Final = compile_on_use(
    r"git\+(?:https|ssh)://[\w.~:/?%@+&=-]+|https://[\w.~:/?%@+&=-]+\.(?:whl|tar\.gz|zip)(?:#sha256=\w+)?|==\d+(?:\.\w+)*",
    re.ASCII,
)
"""Accepted sources, which contain no characters that are special in a shell or in YAML."""


def build_requirement(source: str | None) -> str:
    """Return the requirement (PEP 508) that installs cfglint.

    Return PLACEHOLDER if other machines could not use the source of this installation. Raise UsageError if `source` is
    invalid.
    """
    if source is not None:
        if _SOURCE_PATTERN.fullmatch(source) is None:
            raise UsageError(f"--source {source}: expected git+https://..., https://....whl or ==X.Y.Z")
        return f"{PACKAGE}{source}" if source.startswith("==") else f"{PACKAGE} @ {source}"
    try:
        text = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return PLACEHOLDER
    if text is None:
        return f"{PACKAGE}=={VERSION}"
    address = _parse_address(loads(text))
    return f"{PACKAGE} @ {address}" if _SOURCE_PATTERN.fullmatch(address) is not None else PLACEHOLDER


def _parse_address(direct_url: Any) -> str:
    """Return the URL in a direct_url.json without credentials, or an empty string for a local path."""
    parts = urlsplit(str(direct_url["url"]))
    if parts.scheme == "file" or "dir_info" in direct_url:
        return ""
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2] if parts.scheme != "ssh" else parts.netloc))
    vcs = direct_url.get("vcs_info")
    if vcs is not None:
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    hashes = direct_url.get("archive_info", {}).get("hashes", {})
    return f"{url}#sha256={hashes['sha256']}" if "sha256" in hashes else url


def explain_placeholders(path: str, text: bytes) -> Iterator[str]:
    """Yield an instruction for each line that contains the placeholder."""
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if PLACEHOLDER in line:
            yield (
                f"{path}:{number}: replace SOURCE with an address from which others can install cfglint "
                "(git+https://HOST/OWNER/cfglint@COMMIT, https://HOST/cfglint_train.whl), or run "
                "`cfglint init --source ADDRESS`"
            )


def check_installable(target: str) -> None:
    """Check with pip, or uv if there is no pip (as under `uv tool`), that a requirement can be installed.

    Nothing is installed. Raise UsageError with the reason.
    """
    flags = ["--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--no-input"]
    result = _run_installer(target, sys.executable, "-m", "pip", "install", *flags, target)
    if result.returncode and b"No module named pip" in result.stderr:
        flags = ["--dry-run", "--no-deps", "--reinstall", "--quiet", "--python", sys.executable]
        try:
            result = _run_installer(target, "uv", "pip", "install", *flags, target)
        except FileNotFoundError:
            problem = "cannot be checked without pip or uv; pass --no-check-source to skip the check"
            raise UsageError(f"{target}: {problem}") from None
    if result.returncode:
        raise UsageError(
            f"{target}: cannot be installed: {_extract_reason(result.stderr.decode('utf-8', 'replace'))}; {_HINT}"
        )


def pin_commit(target: str) -> str:
    """Pin a git requirement without a revision to the current commit, so that later runs use the same code.

    Return any other requirement unchanged. Raise UsageError with git's reason.
    """
    marker = f"{PACKAGE} @ git+"
    url = target.removeprefix(marker)
    if url == target or "@" in urlsplit(url).path:
        return target
    try:
        commit = git.run({}, "ls-remote", "--exit-code", url, "HEAD").decode().partition("\t")[0]
    except git.GitError as reason:
        raise UsageError(f"{target}: cannot determine its commit: {reason}; {_HINT}") from None
    return f"{target}@{commit}"


def _run_installer(target: str, program: str, *arguments: str) -> CompletedProcess[bytes]:
    try:
        return programs.run(program, *arguments)
    except TimeoutExpired:
        raise UsageError(f"{target}: no answer within {programs.SECONDS} seconds; {_HINT}") from None


def _extract_reason(output: str) -> str:
    """Return the line with the error: pip's, git's (also inside uv's output) or uv's, or else the last line."""
    lines = [line.strip(" \t\u2570\u2500\u25b6\u251c\u2502\u00d7") for line in output.splitlines()]
    lines = [line for line in lines if line]
    reason = next((line for mark in ("ERROR:", "fatal:", "error:") for line in lines if line.startswith(mark)), None)
    return (reason or (lines[-1] if lines else "no reason was given")).removeprefix("ERROR:").strip()
