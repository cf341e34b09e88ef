"""Comments that silence findings, and those that silence nothing."""

from __future__ import annotations

from collections.abc import Collection

from cfglint_rules import registry
from cfglint_train.documents.document import Span
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.typed import Final
from cfglint_train.judging.collector import Ledger, identity
from cfglint_train.judging.finding_builder import signed
from cfglint_train.judging.selection import Selection
from cfglint_train.settings import pragmas

UNUSED_SUPPRESSION: Final = registry.OF_ENGINE["suppression"]


def unsuppressed(findings: Collection[Finding], ledger: Ledger, selection: Selection) -> list[Finding]:
    """Return the findings that no comment silences, and one for every comment that silences nothing, in order.

    The troubles that silenced findings are about go, too. Where something was not checked, it is unknown what comments
    are for.
    """
    used: set[tuple[str, Span]] = set()
    gone: set[tuple[str, str]] = set()

    def is_silenced(finding: Finding) -> bool:
        _, suppressions = ledger.silencers.get(finding.path, (None, ()))
        spans = [
            span
            for suppression in suppressions
            for span in pragmas.silencing(suppression, finding.code, finding.name, finding.start, finding.end)
        ]
        used.update((finding.path, span) for span in spans)
        if spans:
            gone.add((finding.path, finding.message))
        return bool(spans)

    checked = {path for path, _ in ledger.checked}
    unclear = {trouble.path for trouble in ledger.troubles} | ledger.unread
    # Where a run is not read, whatever else comments silence was not looked for.
    unread = {one.path for one in findings if registry.RULES[one.code].unchecked == "run"}
    unclear |= unread - checked
    kept = [finding for finding in findings if not is_silenced(finding)]
    ledger.troubles = [one for one in ledger.troubles if (one.path, one.message) not in gone]
    unused = {}
    for path, (document, suppressions) in ledger.silencers.items():
        if path not in unclear:
            enabled = selection.enabled(path)
            for report in registry.module(UNUSED_SUPPRESSION).reports(document, suppressions, used, enabled):
                finding = signed(UNUSED_SUPPRESSION, report, selection)
                if finding is not None:
                    unused[identity(finding)] = finding
    kept += [finding for finding in unused.values() if not is_silenced(finding)]
    return sorted(kept, key=lambda finding: finding.order)
