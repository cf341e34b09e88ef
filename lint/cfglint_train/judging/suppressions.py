"""Suppression comments: remove the findings that they suppress, and report unused ones."""

from __future__ import annotations

from collections.abc import Collection

from cfglint_rules import registry
from cfglint_train.documents.document import Span
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.collector import Ledger, get_identity
from cfglint_train.judging.finding_builder import build_finding
from cfglint_train.judging.one_disease import keep
from cfglint_train.judging.selection import Selection
from cfglint_train.settings import pragmas

UNUSED_SUPPRESSION: Final = registry.ENGINE_RULES["suppression"]


def filter_suppressed(findings: Collection[Finding], ledger: Ledger, selection: Selection) -> list[Finding]:
    """Return the unsuppressed findings and a finding for every unused suppression, in order.

    Remove the troubles of suppressed findings from the ledger. In files that were not checked completely, unused
    suppressions cannot be identified and are not reported.
    """
    used: set[tuple[str, Span]] = set()
    suppressed_messages: set[tuple[str, str]] = set()

    def is_suppressed(finding: Finding) -> bool:
        _, suppressions = ledger.suppressions.get(finding.path, (None, ()))
        spans = [
            span
            for suppression in suppressions
            for span in pragmas.find_silencing_codes(
                suppression, finding.code, finding.name, finding.start, finding.end
            )
        ]
        used.update((finding.path, span) for span in spans)
        if spans:
            suppressed_messages.add((finding.path, finding.message))
        return bool(spans)

    checked_paths = {path for path, _ in ledger.checked}
    unclear_paths = {trouble.path for trouble in ledger.troubles} | ledger.unread_paths
    # Rules did not check an unread run, so its suppressions may only appear to be unused.
    unread_paths = {item.path for item in findings if registry.RULES[item.code].unchecked == "run"}
    unclear_paths |= unread_paths - checked_paths
    remaining = keep(findings, lambda finding: not is_suppressed(finding))
    ledger.troubles = [item for item in ledger.troubles if (item.path, item.message) not in suppressed_messages]
    unused = {}
    for path, (document, suppressions) in ledger.suppressions.items():
        if path not in unclear_paths:
            enabled = selection.list_enabled(path)
            for report in registry.load_module(UNUSED_SUPPRESSION).reports(document, suppressions, used, enabled):
                finding = build_finding(UNUSED_SUPPRESSION, report, selection)
                if finding is not None:
                    unused[get_identity(finding)] = finding
    remaining += [finding for finding in unused.values() if not is_suppressed(finding)]
    return sorted(remaining, key=lambda finding: finding.sort_key)
