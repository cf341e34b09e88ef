"""SEC002 secret-in-configuration: the file contains a credential.

## What it does
Recognizes the tokens of more than a hundred services by their published format. Among them are Hugging Face, Weights &
Biases, GitHub, GitLab, OpenAI, Anthropic, AWS, Azure (account keys, signed URLs) and Google. Others are Slack, Discord
(tokens, webhooks), Telegram, Modal, Docker, npm, PyPI and JSON web tokens.

It also reports:

- a W&B key (40 hexadecimal digits) after `wandb login`, `--use_wandb` or one of W&B's names for it
- passwords in URLs, private keys (PEM), and tokens after `Bearer`
- any literal of eight characters or more, if its key ends in `password`, `passwd`, `passphrase` or `secret`
- a value that is not a word, if its key ends in `_pass`
- a value that looks generated, if its key ends in `token`, `api_key` or `access_key`

It reads keys, flags, exported variables and comments, including those in the scripts that start a configuration.
Multi-line and escaped values are checked after parsing. Every output masks the value itself.

## Why is this bad?
Configurations are committed, copied into run folders, and uploaded with checkpoints and experiment trackers. As soon as
one of these copies is public, so is the token.

## Example
    wandb_api_key: 0123456789abcdef0123456789abcdef01234567

## Use instead
Put the credential in the environment (`WANDB_API_KEY`, `HF_TOKEN`) or use the service's own login. Revoke the
credential that leaked.

## When it does not apply
These are not credentials:

- placeholders (`<token>`, `xxx`, `your-key-here`, `${WANDB_API_KEY}`)
- paths, variable names, and names of secrets that are stored elsewhere (`vault:...`, `secret: wandb-login`)
- vocabulary tokens (`pad_token: "<pad>"`)
- booleans, such as `true` for "use the login"
- commit hashes: 40 hexadecimal digits count only after a name from which W&B reads its key
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from weakref import WeakKeyDictionary

from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Document, Route, Scalar, Sequence, Span, follow
from cfglint_train.findings.finding import Report
from cfglint_train.foundation import credentials
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Place

RULE: Final = Rule("SEC002", "secret-in-configuration", "error", scope="config", reported_by_engine="secret")

# Clues to keys that may hold a credential. Mappings are searched only if the text contains a clue.
_KEY_WORDS: Final = (b"key", b"token", b"secret", b"pass", b"pwd")
_KEY_CLUE: Final = rb"(?:key|token|secret|passw(?:or)?d|passphrase|pass|pwd)[\"']?[ \t]*[:=,}\r\n]"
_MAX_CREDENTIALS: Final = 1_000
"""Maximum number of credentials that are searched for in a file."""
_MIN_MASKED_LENGTH: Final = 8
"""Minimum number of characters of a part that is masked by itself; for a shorter part, the whole line is masked."""


def check(config: Config) -> Iterator[Report]:
    """Return an iterator over the reports: one for every credential in a config."""
    return reports(config.document, config.root)


def reports(document: Document, root: Route = ()) -> Iterator[Report]:
    """Return a report for every credential in a document, such as a script that starts a config.

    Values that are recognized by their key, not by their format, are reported only below `root`.
    """
    return (
        _build_report(document, credential.span, credential.description)
        for credential in _find_credentials(document, root)
    )


def values(document: Document) -> Iterator[str]:
    """Yield the texts to mask for every credential in a document: its value as parsed, and each line of its source."""
    for credential in _find_credentials(document, ()):
        if credential.text is not None:
            yield credential.text
        source_text = document.get_text(credential.span)
        if "\n" not in source_text:
            yield source_text.strip("\"'")
            continue
        start = document.source.rfind(b"\n", 0, credential.span.start) + 1
        lines = (
            document.source[start : document.find_line_end(credential.span.end)].decode("utf-8", "replace").split("\n")
        )
        for part, line in zip(source_text.split("\n"), lines, strict=True):
            # A short part may occur inside any word, so the whole line is masked.
            yield part.strip() if len(part.strip()) >= _MIN_MASKED_LENGTH else line.strip()


class _Credential(Frozen):
    """A credential in a document."""

    span: Span
    description: str
    text: str | None = None
    """Value as parsed, if it may differ from the source text."""


_credentials: Final[WeakKeyDictionary[Document, dict[Route, tuple[_Credential, ...]]]] = WeakKeyDictionary()
"""Credentials by root; a document that nothing else uses is forgotten with them, as after each edit in an editor."""


def _find_credentials(document: Document, root: Route) -> tuple[_Credential, ...]:
    """Return the credentials in a document.

    Credentials of a known format are found anywhere, values of keys that name a credential only below `root`.
    """
    by_root = _credentials.setdefault(document, {})
    if root not in by_root:
        by_root[root] = tuple(islice(_search_credentials(document, root), _MAX_CREDENTIALS))
    return by_root[root]


def _search_credentials(document: Document, root: Route) -> Iterator[_Credential]:
    spans: set[Span] = set()
    for scalar in _list_escaped(document, root) if b"\\" in document.source else ():
        source_text = document.get_text(scalar.span)
        for start, end in credentials.find_credentials(scalar.text):
            if scalar.text[start:end] not in source_text:
                spans.add(scalar.span)
                yield _Credential(scalar.span, "a credential", scalar.text[start:end])
                break
    keyed = [
        credential
        for credential in _search_by_key(document, root)
        if not any(_is_overlapping(credential.span, known_span) for known_span in spans)
    ]
    for start, end in sorted(
        credentials.find_credentials(document.source.decode("latin-1"))
    ):  # latin-1: one character per byte
        span = Span(start, end)
        # If only part of a value looks like a credential but its key marks all of it, report the whole value.
        is_part = any(
            _is_overlapping(span, credential.span) and credential.text != document.get_text(span)
            for credential in keyed
        )
        if not is_part and not any(_is_overlapping(span, known_span) for known_span in spans):
            spans.add(span)
            yield _Credential(span, "a credential")
    yield from (
        credential
        for credential in keyed
        if not any(_is_overlapping(credential.span, known_span) for known_span in spans)
    )


def _search_by_key(document: Document, root: Route) -> Iterator[_Credential]:
    """Yield the values below a route that are credentials according to their key."""
    lowered = document.source.lower()
    if not any(word in lowered for word in _KEY_WORDS) or re.search(_KEY_CLUE, lowered) is None:
        return
    for route, mapping in document.list_mappings():
        if route[: len(root)] != root:
            continue
        scalars = {entry.name: follow(entry.value) for entry in mapping.entries if entry.name is not None}
        variable = scalars.get("name")  # an environment variable in a Kubernetes list
        if isinstance(variable, Scalar) and "value" in scalars:
            scalars[variable.text] = scalars["value"]
        for name, value in scalars.items():
            if isinstance(value, Scalar) and credentials.is_secret(name, value.text):
                yield _Credential(value.span, f"the value of {name}", value.text)


def _list_escaped(document: Document, root: Route) -> Iterator[Scalar]:
    """Yield the scalars below a route whose source text contains a backslash, and so may differ from their value."""
    for route, mapping in document.list_mappings():
        if route[: len(root)] == root:
            waiting = [entry.value for entry in mapping.entries]
            while waiting:
                node = follow(waiting.pop())
                if isinstance(node, Sequence):
                    waiting += node.items
                elif isinstance(node, Scalar) and "\\" in document.get_text(node.span):
                    yield node


def _is_overlapping(span: Span, other: Span) -> bool:
    return span.start < other.end and other.start < span.end


def _build_report(document: Document, span: Span, description: str) -> Report:
    return Report(
        f"{description} is stored in the file in plain text",
        Place(document, span),
        help="revoke it, and read its replacement from an environment variable",
        is_secret=True,
    )
