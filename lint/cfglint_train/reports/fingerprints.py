"""Fingerprints, by which other programs recognize a finding even if other lines of its file have changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.judging.result import Result
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.places import make_checkout_path


def compute_fingerprints(result: Result, root: str | None) -> Iterator[tuple[Finding, str, int]]:
    """Yield every finding with its fingerprint and the number of equal fingerprints before it.

    A fingerprint is a hash of the rule, the path from the checkout's `root` and the text of the line, with credentials
    masked. It excludes the line number and the message, because numbers in a message change with the model and the
    cluster.
    """
    redact = build_redaction(result.secrets)
    seen: Counter[str] = Counter()
    for finding in result.findings:
        line = "" if finding.place is None else get_line_text(finding.place.document, finding.start.line).strip()
        parts = (finding.code, escape_data(make_checkout_path(finding.path, root)), redact(line))
        fingerprint = sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
        yield finding, fingerprint, seen[fingerprint]
        seen[fingerprint] += 1
