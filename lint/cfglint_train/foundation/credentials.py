"""Credentials: service tokens, recognized by their published shapes, and the values of keys named like secrets.

Rules report the credentials in files. The same patterns mask all output, whatever file or message a token comes from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final


class _Shape(Frozen):
    """A kind of credential; the pattern is compiled only for texts that contain a clue."""

    clues: tuple[str, ...]
    """Lowercase strings; every match of the pattern contains one of them."""
    pattern: str
    """Pattern whose last matching group is the credential; without a group, the whole match is.

    Every repetition is bounded, which keeps the search linear.
    """
    is_delimited: bool = True
    """True if no letter or digit may be next to the match."""


# Tokens with a distinctive prefix; `token_shapes.json` has about a hundred more. Sources: the services' documentation;
# GitHub's "Supported secret scanning patterns" (Docker, Groq, LangSmith, NVIDIA, Replicate, xAI); the documentation of
# Slack's, Discord's, Telegram's and Azure's URLs.
_SHAPES: Final = (
    _Shape(("hf_",), r"hf_[A-Za-z0-9]{30,250}"),
    _Shape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,250}"),
    _Shape(("github_pat_",), r"github_pat_[A-Za-z0-9_]{50,250}"),
    _Shape(("glpat-",), r"glpat-[A-Za-z0-9_-]{20,250}"),
    _Shape(("sk-",), r"sk-(?:ant-[A-Za-z0-9_-]{30,250}|(?:proj-)?[A-Za-z0-9_-]{32,250})"),
    _Shape(("akia", "asia"), r"A(?:KIA|SIA)[A-Z0-9]{16}"),
    _Shape(("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{20,250}"),
    _Shape(("aiza",), r"AIza[A-Za-z0-9_-]{35}"),
    _Shape(("pypi-",), r"pypi-[A-Za-z0-9_-]{50,250}"),
    _Shape(("wandb_v1_",), r"wandb_v1_[A-Za-z0-9_]{30,250}"),
    _Shape(("dckr_",), r"dckr_[a-z]{3}_[A-Za-z0-9_-]{20,100}"),
    _Shape(("gsk_",), r"gsk_[A-Za-z0-9]{40,100}"),
    _Shape(("nvapi-",), r"nvapi-[A-Za-z0-9_-]{40,150}"),
    _Shape(("xai-",), r"xai-[A-Za-z0-9]{60,150}"),
    _Shape(("r8_",), r"r8_[A-Za-z0-9]{37,60}"),
    _Shape(("lsv2_",), r"lsv2_[a-z]{2}_[A-Za-z0-9_]{30,100}"),
    _Shape(
        (
            "ak-",
            "as-",
        ),  # Modal: an ID and a secret. About 1 in 10^5 tokens is missed, because its letters have only one case.
        r"a[ks]-(?=[^A-Z]{0,21}[A-Z])(?=[^a-z]{0,21}[a-z])[A-Za-z0-9]{22}",
    ),
    _Shape(
        ("accountkey=", "accesskey="),
        r"(?i:account|access)(?i:key)=([A-Za-z0-9+/]{40,100}={1,2})",
        False,
    ),
    _Shape(("eyj",), r"eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}"),
    _Shape((":aa",), r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", False),  # Telegram bots
    _Shape(("hooks.slack",), r"(?i:hooks\.slack(?:-gov)?\.com)/[a-z]{3,20}/([A-Za-z0-9/_-]{20,200})", False),
    _Shape(
        ("webhooks/",), r"(?i:discord(?:app)?\.com)/api/(?:v[0-9]{1,3}/)?webhooks/[0-9]{5,25}/([\w-]{20,200})", False
    ),
    _Shape(("webhook.office",), r"(?i:webhook\.office\.com)/[A-Za-z0-9]{3,20}/([A-Za-z0-9/@-]{40,300})", False),
    _Shape(("sig=",), r"(?<![A-Za-z0-9_])(?i:sig)=([A-Za-z0-9%+/_=-]{20,200}+)(?![A-Za-z0-9%+/_=-])", False),
    _Shape(("signature=",), r"(?i:x-(?:amz|goog)-signature)=([0-9a-f]{40,1024})", False),
)
# Credentials without a distinctive shape are recognized by the text before them on the line. The groups hold the
# credentials.
_WANDB: Final = (
    r"(?i:wandb[ \t]+login(?:[ \t]+--?[a-z]{1,20}(?:=[^\s]{1,100})?){0,5}"
    r"|(?:use_)?wandb(?:[._-]?(?:api[._-]?)?(?:key|token))?)"
    r"[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?([0-9a-f]{40})(?![0-9A-Za-z_])"
)
# 40 base64 characters after a name such as `aws_secret_access_key`, as in awslabs/git-secrets (`--register-aws`). About
# 1 key in 10^9 is missed, because its letters have only one case, like a path.
_AWS: Final = (
    r"(?i:aws[._-]?secret(?:[._-]?key)?|secret[._-]?access[._-]?key)[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?"
    r"((?=[^A-Z]{0,39}[A-Z])(?=[^a-z]{0,39}[a-z])[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/_=.-])"
)
_ADDRESS: Final = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,200}:([^\s\"']{3,200})@"
_DATABASE: Final = r"(?i:postgres|mysql|mariadb|mongodb|redis|amqp|mssql|oracle|clickhouse)"
_USER: Final = r"://([A-Za-z0-9_~.%-]{20,200})@"
_BEARER: Final = r"(?i:bearer|basic)[ \t]+([A-Za-z0-9+/_=.~-]{16,4000})"
_PRIVATE: Final = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----((?:[^-]|-(?!----)){20,20000})"
# The last word of a key decides which values count as credentials.
_PASSWORD_KEYS: Final = r"password|passwd|passphrase|[_-]pwd"
"""Key endings for values that a person may have chosen: any literal is a credential."""
_PASS_KEYS: Final = r"[_-]pass"
"""Key ending that may mean something else (`forward_pass`): words and numbers are not credentials."""
_TOKEN_KEYS: Final = r"token|(?:api|access|account|auth|private|secret|signing|storage|master)[_-]?key"
"""Key endings for generated values: any other value is something else, such as a tokenizer's special token."""
_NAME: Final = rf"{_PASSWORD_KEYS}|{_PASS_KEYS}|secret|{_TOKEN_KEYS}"
_NAMED: Final = (
    rf"(?P<flag>(?<![A-Za-z0-9_-])--?[A-Za-z0-9_.-]{{0,60}})?(?P<name>(?i:{_NAME}))\\?[\"']?"
    r"(?P<sign>[ \t]*[:=][ \t]*|[ \t]+)"
    r"(?:\\\"(?P<nested>[^\"\\]{8,4000}+)(?=\\\")|\"(?P<double>(?:[^\"\\]|\\.){8,4000}+)(?=\")"
    r"|\\?'(?P<single>(?:[^'\\]|''|\\(?!')){8,4000}+)(?=\\?')"
    r"|\\?(?P<bare>[^\s\"'`,;(){}\[\]<>|&$\\]{8,4000}+)(?P<rest>(?=[\s\"'`,;)}\]<|&\\]|$)[ \t]*[^\s]?))"
)
# A text cannot match if it lacks the clues of a pattern, or a value of the form in `_VALUES`. This is checked first,
# because most texts lack them, and then the pattern need not be compiled.
_BY_NAME: Final = (
    _Shape(("wandb",), _WANDB, False),
    _Shape(("secret",), _AWS, False),
    _Shape(("://",), _ADDRESS, False),
    _Shape(("://",), _USER, False),
    _Shape(("bearer", "basic"), _BEARER, False),
    _Shape(("private key",), _PRIVATE, False),
)
_VALUES: Final = {_WANDB: r"[0-9a-f]{40}", _AWS: r"[A-Za-z0-9+/]{40}"}
_LONG: Final = r"[A-Za-z0-9+/_=.~-]{16,500}"
_SECRET_WORDS: Final = ("passw", "passphrase", "_pass", "-pass", "_pwd", "-pwd", "secret")
_WORDS: Final = (*_SECRET_WORDS, "token", "key")
# Placeholders: words between boundaries, as in `hf_xxxx` and `your-key`; the example keys in AWS's documentation; and
# values that are nothing but a word such as `password`.
PLACEHOLDER: Final = (
    r"(?<![A-Za-z0-9])(?i:x{4,}|(?:(?:token|secret|password|key)[_-]?)?here)(?![A-Za-z0-9])|(?i:x{8,})|\*{8,}"
    r"|(?<![A-Za-z])(?i:your?|examples?|change[_-]?me|placeholder|redacted|dummy)(?![A-Za-z])|EXAMPLE(?:KEY)?$"
    r"|^(?:\*{3,}|\$\w+|(?i:pass(?:word)?|passwd|pwd|secret|token|required|optional|enabled|disabled|protected|incorrect"
    r"|undefined|environment|interactive))$"
)
_SUBSTITUTIONS: Final = r"\$?\{\{[^{}]*\}\}|\$\{[^{}]*\}|\$\([^()]*\)|%\(\w+\)s|<[^<>]*>"
"""Substitutions; a value that is shorter than `_MIN_LENGTH` without them is not a credential."""
_REFERENCE: Final = (
    r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"  # an environment variable
    r"|[A-Z][A-Z0-9_]*=[A-Za-z]+[0-9]{0,4}(?:[_-][A-Za-z0-9]+)*"  # a variable and its secret (gantry's `--env-secret`)
    r"|(?i:(?:[a-z]+_)*(?:password|passwd|secret|token|key))"  # another variable
    r"|(?i:env|file|secret|vault|op|ssm|arn|aws|gcp|azure|keyring):.*"  # a reference to a store
    r"|[a-z]+(?:_[a-z]+)+|!ENV .*|[a-z_]+(?:\.[a-z_]+)*(?:\(.*\)|\[.*\])"  # a name, or code
    r"|(?:~|\.{0,2})/.*|.*://.*|[\w.-]+(?:/[\w.-]+)*/[\w-]*\.[\w.-]+"  # a file
)
_ATTRIBUTE: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
"""A Python attribute such as `args.token`."""
_LABEL: Final = r"[a-z]+(?:[-_.][a-z0-9]+)*"
"""The name of a secret in a secret store, such as `hf-token`."""
_WORD: Final = r"[A-Z]?[a-z]{0,20}[0-9]{0,8}[a-z]{0,2}[0-9]{0,2}|[A-Z]{1,10}[0-9]{0,4}"


def find_credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each credential in a text, in no particular order; they may overlap."""
    lowered = text.lower()
    characters = set(lowered)  # search for a clue only if all of its characters occur
    clued = [shape for clue, shape in _load_shapes() if characters.issuperset(clue) and clue in lowered]
    for shape in dict.fromkeys(clued):
        if shape.pattern in _VALUES and re.search(_VALUES[shape.pattern], text) is None:
            continue
        pattern = rf"(?<![A-Za-z0-9_])(?:{shape.pattern})(?![A-Za-z0-9_])" if shape.is_delimited else shape.pattern
        for match in re.finditer(pattern, text):
            value = match[match.lastindex or 0]
            if not _is_placeholder(value) and _is_credential(shape, match, value):
                yield match.span(match.lastindex or 0)
    words = [word for word in _WORDS if word in lowered]
    if not _can_contain(words, text):
        return
    start = 0
    for line, low in zip(text.split("\n"), lowered.split("\n"), strict=True):
        if len(low) > _MIN_LENGTH:
            line_words = [word for word in words if word in low]
            if line_words and _can_contain(line_words, line):
                yield from ((start + first, start + end) for first, end in _find_named_values(line))
        start += len(line) + 1


def _is_credential(shape: _Shape, match: re.Match[str], value: str) -> bool:
    """Return whether a match is a credential, and not words that happen to have its shape."""
    if shape.pattern in (_USER, _BEARER):
        return is_generated(value)
    if (
        shape.pattern == _ADDRESS and re.search("[/@]", value) is not None
    ):  # possibly a port and a path that contains an `@`
        return "://" not in value and (re.match(_DATABASE, match[0]) is not None or not _is_words(value, 0))
    return not shape.is_delimited or not _is_words(value)


def _is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder, or shorter than `_MIN_LENGTH` without its substitutions."""
    if re.search(PLACEHOLDER, value) is not None:
        return True
    literal_text = re.sub(_SUBSTITUTIONS, "", value)
    return literal_text != value and len(literal_text) < _MIN_LENGTH


def _is_words(value: str, minimum: int = 2) -> bool:
    """Return whether a value consists of words, numbers and separators, with at least `minimum` words."""
    parts = re.split(r"[-_./@ ]", value)
    words = sum(part.isalpha() and len(part) > 2 for part in parts)
    return words >= minimum and all(re.fullmatch(_WORD, part) for part in parts)


def _can_contain(words: list[str], text: str) -> bool:
    """Return whether a text that contains `words` of `_WORDS` can contain a key whose value is a credential."""
    if any(word in _SECRET_WORDS for word in words):
        return True
    return bool(words) and any(map(is_generated, re.findall(_LONG, text)))


def _find_named_values(line: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each credential that a line assigns to a key named like a secret."""
    for match in re.finditer(_NAMED, line):
        kind = next(kind for kind in ("nested", "double", "single", "bare") if match[kind] is not None)
        value = match[kind]
        if match["sign"].isspace() and not match["flag"]:
            if not is_opaque(value):  # the next word of a sentence
                continue
        elif (
            kind == "bare"
            and ":" in match["sign"]
            and match["rest"].strip() not in _VALUE_ENDS
            and not is_generated(value)
        ):
            continue  # a sentence
        elif kind == "bare" and "=" in match["sign"] and re.fullmatch(_ATTRIBUTE, value):
            continue
        if is_secret(match["name"], value):
            yield match.span(kind)


_VALUE_ENDS: Final = ("", "#", ",", "}", "]", ")", '"', "'", "`", ";", "&", "|", "\\")
"""Characters, or the end of the line, that may follow an unquoted value."""


def is_secret(key: str, value: str) -> bool:
    """Return whether a key is named like a secret and its value is a literal credential, not a reference."""
    if len(value) < _MIN_LENGTH:
        return False
    lowered = key.lower()
    if not any(word in lowered for word in _SECRET_WORDS) and not is_generated(value):
        return False  # decided without the pattern, which takes 2 ms to compile
    name = re.search(rf"(?i)(?:({_PASSWORD_KEYS})|({_PASS_KEYS})|(secret)|{_TOKEN_KEYS})$", key)
    if name is None:
        return False
    if name.lastindex is None:
        return is_generated(value) and not _is_placeholder(value)
    if _is_placeholder(value) or re.fullmatch(_REFERENCE, value) or ("/" in value and _is_words(value)):
        return False
    if " " in value and "passphrase" not in key.lower():
        return not all(re.fullmatch(r"[A-Z]?[a-z]*[.,:;!?]?|[A-Z]+|[0-9]+", word) for word in value.split())
    if name[2]:
        return re.fullmatch(r"[A-Za-z_.-]+|[0-9.]+", value) is None
    return not name[3] or (re.fullmatch(_LABEL, value) is None and not _is_words(value))


_MIN_LENGTH: Final = 8
"""Minimum length of a secret in characters; words such as "none" and "ask me" are shorter."""


def is_opaque(text: str) -> bool:
    """Return whether a value of 20 or more characters looks generated: letters and digits mixed, not a path."""
    if len(text) < 20 or " " in text or _is_path(text):
        return False
    turns = sum(char.isdigit() != following.isdigit() for char, following in zip(text, text[1:], strict=False))
    return turns >= 4 and sum(map(str.isdigit, text)) >= 4 and any(map(str.isalpha, text))


def is_generated(text: str) -> bool:
    """Return whether a value looks generated, including values of 16 characters and mixed-case values with few digits.

    Misses about 20 in 1,000 values of 16 random letters and digits. Words, releases and model names do not count.
    """
    if not any(map(str.isdigit, text)):  # most words of a config
        return False
    if is_opaque(text):
        return True
    if re.fullmatch(_LONG, text) is None or _is_path(text):
        return False
    turns = sum(
        (char.isdigit() and following.isalpha())
        or (char.isalpha() and following.isdigit())
        or (char.islower() and following.isupper())
        for char, following in zip(text, text[1:], strict=False)
    )
    return turns >= max(3, len(text) / 6)


def _is_path(text: str) -> bool:
    return text.startswith(("/", ".", "-", "~")) or "://" in text or ("/" in text.strip("/") and "." in text)


@cache
def _load_shapes() -> tuple[tuple[str, _Shape], ...]:
    """Return every clue with its shape, from this module and `token_shapes.json`."""
    from json import loads

    with open(os.path.join(os.path.dirname(__file__), "token_shapes.json"), encoding="utf-8") as file:
        patterns: Mapping[str, str] = loads(file.read())["shapes"]
    shapes = (*_SHAPES, *(_Shape((prefix,), pattern) for prefix, pattern in patterns.items()), *_BY_NAME)
    return tuple((clue, shape) for shape in shapes for clue in shape.clues)


@lru_cache(maxsize=1024)  # reports repeat most texts
def mask(text: str) -> str:
    """Replace every character of a credential in a text with an asterisk, so that lines and columns stay the same."""
    parts: list[str] = []
    masked_until = 0
    for start, end in sorted(find_credentials(text)):
        if end > masked_until:
            parts += (
                text[masked_until : max(start, masked_until)],
                re.sub(r"[^\n]", "*", text[max(start, masked_until) : end]),
            )
            masked_until = end
    return "".join((*parts, text[masked_until:])) if parts else text


def shorten(text: str, limit: int) -> str:
    """Shorten a text for a message to at most `limit` characters.

    A text that is too long is masked first, because a truncated credential would no longer be recognized.
    """
    if len(text) <= limit:
        return text
    return mask(text)[: limit - 3] + "..."
