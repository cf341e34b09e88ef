"""What credentials look like: tokens of services by their published shape, values of keys that are called a secret.

Rules find them in files, and every output is masked by the same patterns, whatever file or message a token comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.foundation.typed import Final

# Published shapes; the prefixes are part of them. (Every repetition has a bound, which keeps the search linear.)
_SHAPES: Final = (
    r"(?<![A-Za-z0-9_])(?:"
    r"hf_[A-Za-z0-9]{30,250}|gh[pousr]_[A-Za-z0-9]{36,250}|github_pat_[A-Za-z0-9_]{50,250}|glpat-[A-Za-z0-9_-]{20,250}"
    r"|sk-ant-[A-Za-z0-9_-]{30,250}|sk-(?:proj-)?[A-Za-z0-9_-]{32,250}|A(?:KIA|SIA)[A-Z0-9]{16}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{20,250}|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,250}"
    r"|wandb_v1_[A-Za-z0-9_]{30,250}|eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}"
    r")(?![A-Za-z0-9_])"
)
# Credentials without a shape of their own are recognised by what precedes them on the line; the groups are the
# credentials.
_WANDB: Final = (
    r"(?i:wandb[ \t]+login(?:[ \t]+--?[a-z]{1,20}(?:=[^\s]{1,100})?){0,5}"
    r"|(?:use_)?wandb(?:[._-]?(?:api[._-]?)?(?:key|token))?)"
    r"[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?([0-9a-f]{40})(?![0-9A-Za-z_])"
)
_NAMED: Final = (
    r"(?i:(?<![A-Za-z0-9])(?:api_?key|access_?key|(?:access_|auth_|hub_|hf_|secret_)token|secret(?:_key)?|password|passwd))"
    r"[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?([A-Za-z0-9+/_=.-]{20,200})(?![A-Za-z0-9+/_=.-])"
)
# 40 characters of base64 behind a name of it, as awslabs/git-secrets looks for them (`--register-aws`). About one in
# 10^9 has letters of one case only, as a path may have.
_AWS: Final = (
    r"(?i:aws[._-]?secret(?:[._-]?key)?|secret[._-]?access[._-]?key)[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?"
    r"((?=[^A-Z]{0,39}[A-Z])(?=[^a-z]{0,39}[a-z])[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/_=.-])"
)
_ADDRESS: Final = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,200}:([^\s/@\"'<>]{3,200})@"
# A text without any of the clues of a pattern holds none, nor one without such a value; asked first, since most texts
# are such and then the pattern does not have to be compiled.
_CLUES: Final = {
    _SHAPES: (
        "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "akia", "asia", "xox", "aiza",
        "npm_", "pypi-", "eyj", "wandb_v1_",
    ),
    _WANDB: ("wandb",),
    _NAMED: ("key", "token", "secret", "passw"),
    _AWS: ("secret",),
    _ADDRESS: ("://",),
}  # fmt: skip
_VALUES: Final = {_WANDB: r"[0-9a-f]{40}", _NAMED: r"[A-Za-z0-9+/_=.-]{20,}", _AWS: r"[A-Za-z0-9+/]{40}"}
_DIGITS: Final = 4
"""What looks generated has as many."""
PLACEHOLDER: Final = (
    r"(?i)x{4,}|\*{3,}|your|example|changeme|<|\$|\{|placeholder|token_here|^(?:pass(?:word)?|passwd|pwd|secret|token)$"
)


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where credentials are in a text, in no order."""
    lowered = text.lower()
    for pattern, clues in _CLUES.items():
        if not any(clue in lowered for clue in clues):
            continue
        if pattern in _VALUES and not any(
            pattern is not _NAMED or _digits(value) >= _DIGITS for value in re.findall(_VALUES[pattern], text)
        ):
            continue
        for match in re.finditer(pattern, text):
            found = match[match.lastindex or 0]
            if re.search(PLACEHOLDER, found) is None and (pattern is not _NAMED or is_opaque(found)):
                yield match.span(match.lastindex or 0)


def is_opaque(text: str) -> bool:
    """Whether a value looks generated: letters and digits mixed all through, unlike a path, a word or a number."""
    if text.startswith(("/", ".", "-")) or ("/" in text.strip("/") and "." in text):
        return False
    turns = sum(one.isdigit() != other.isdigit() for one, other in zip(text, text[1:], strict=False))
    return turns >= 4 and _digits(text) >= _DIGITS and any(map(str.isalpha, text))


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def masked(text: str) -> str:
    """The text with every credential replaced by as many asterisks, so that columns stay where they are."""
    parts: list[str] = []
    done = 0
    for start, end in sorted(spans(text)):
        if end > done:
            parts += (text[done : max(start, done)], "*" * (end - max(start, done)))
            done = end
    return "".join((*parts, text[done:])) if parts else text
