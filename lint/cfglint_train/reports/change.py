"""Comparison of the runs of two results of a lint, in the terms of the plan: records, text, JSON and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from cfglint_train import records
from cfglint_train.findings.finding import Finding
from cfglint_train.fitting import places
from cfglint_train.fitting.changed_speed import compare_speed
from cfglint_train.fitting.words import format_slowdown
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import Budget, Resource
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field
from cfglint_train.plan.reading import SPELLINGS, is_equal
from cfglint_train.records import (
    Comparison,
    FieldChange,
    Peak,
    ReleaseChange,
    RunChange,
    RunFacts,
    SettingChange,
)
from cfglint_train.releases.changed_keys import list_changed_keys
from cfglint_train.reports import json
from cfglint_train.reports.answer import find_gap
from cfglint_train.reports.cost import build_cost, format_cost
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.markdown import escape_cell, render_message
from cfglint_train.reports.origins import format_value
from cfglint_train.reports.setting_changes import convert_value, list_setting_changes
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.reports.text import wrap_text
from cfglint_train.runs.cost import compute_tokens_per_step
from cfglint_train.runs.run import Run

VERSION: Final = 1
_OWN_NAMES: Final[frozenset[str]] = frozenset({
    *SPELLINGS, "checkpoint.path", "checkpoint.final_path", "launch.launcher", "launch.environment",
})  # fmt: skip
"""Fields that frameworks spell in their own way, so that they do not make runs of two frameworks differ."""
_HEADLINES: Final[frozenset[str]] = frozenset(("batch.global_", "sequence.length"))
"""Fields that have a line of their own in the text."""
_MAX_KEYS: Final = 5
"""Maximum number of keys with a changed meaning, and of fields without a known effect, that the text names."""
_MAX_SETTINGS: Final = 20
"""Maximum number of other settings that the text and Markdown list for a run."""
_MAX_WIDTH: Final = 60
"""Maximum length of the value of such a setting."""
_MAX_RUNS: Final = 50
MAX_BYTES: Final = 100_000
"""Limits of Markdown: GitHub accepts 1 MiB of summary, of which the report of the findings takes at most 900,000."""
_RunKey = tuple[str, str]
"""The path of a run and its place in the file."""
_SIMILARITY: Final = 0.5
"""Minimum share of common lines of a renamed file, as in git (git-diff(1), -M)."""
_MAX_RENAMES: Final = 10_000
"""Maximum number of pairs of files that are compared."""
_UNKNOWN: Final = "not known"
_NOTHING: Final = Result((), (), (), (), ())
"""Result of a side without files."""
_PLACE_NAMES: Final[dict[Resource, str]] = {"gpu": "peak GPU", "host": "host", "disk": "disk"}


# --- comparison ------------------------------------------------------------------------------------------------------


def compare(before: Result | None, after: Result | None, *, is_pair: bool = False) -> Comparison:
    """Compare the runs of two results, matched by file and place in it, or by their lines if a file was renamed.

    `is_pair`: the results are those of two files, whose runs are matched in order.
    """
    before, after = before or _NOTHING, after or _NOTHING
    redact = build_redaction((*before.secrets, *after.secrets))
    old, new = (_list_runs(result) for result in (before, after))
    for earlier, later in () if is_pair else _find_renamed(old, new):
        old[later] = old.pop(earlier)
    pairs = (
        list(zip_longest(old.values(), new.values()))
        if is_pair
        else [(old.get(key), new.get(key)) for key in sorted({*old, *new})]
    )
    changes = [_compare_runs(left, right, before, after, redact) for left, right in pairs]
    shown = tuple(change for change in changes if is_pair or change.kind != "same")
    return Comparison(shown, len(changes) - len(shown))


def _list_runs(result: Result) -> dict[_RunKey, Run]:
    """Return the training runs by path and place in the file."""
    runs = ((run.main.document.path, str(run.main.root), run) for run in result.runs if run.is_training_run)
    return {(path.replace("\\", "/"), root): places.choose_worse(run) for path, root, run in runs}


def _find_renamed(old: Mapping[_RunKey, Run], new: Mapping[_RunKey, Run]) -> Iterator[tuple[_RunKey, _RunKey]]:
    """Yield the keys before and after of runs whose file was renamed; the most similar files come first."""
    removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if len(removed) * len(added) > _MAX_RENAMES:
        return
    lines = {
        key: Counter(runs[key].main.document.source.splitlines())
        for runs, keys in ((old, removed), (new, added))
        for key in keys
    }
    similar = [
        (-similarity, earlier, later)
        for earlier in removed
        for later in added
        if old[earlier].framework is new[later].framework and earlier[1] == later[1]
        if (similarity := _compare_lines(lines[earlier], lines[later])) >= _SIMILARITY
    ]
    for _, earlier, later in sorted(similar):
        if earlier in removed and later in added:
            removed.remove(earlier)
            added.remove(later)
            yield earlier, later


def _compare_lines(before: Counter[bytes], after: Counter[bytes]) -> float:
    """Return the share of the lines that two files have in common."""
    return (before & after).total() / max(before.total(), after.total(), 1)


def _compare_runs(before: Run | None, after: Run | None, old: Result, new: Result, redact: Redact) -> RunChange:
    old_facts, new_facts = (None if run is None else _build_facts(run, redact) for run in (before, after))
    gone, added = (_list_findings(run, result) for run, result in ((before, old), (after, new)))
    if before is None or after is None:
        kind: Literal["new", "removed"] = "new" if before is None else "removed"
        return RunChange(
            kind, old_facts, new_facts, None, (), (), (), (), _build_findings(added, new), _build_findings(gone, old)
        )
    fields = tuple(_compare_fields(before, after, redact))
    settings = tuple(list_setting_changes(before, after, fields, redact))
    releases = tuple(_compare_releases(before, after))
    findings = _build_findings(_subtract(added, gone), new), _build_findings(_subtract(gone, added), old)
    speed = compare_speed(before, after) if fields else None
    slowdown, uncounted = (None, ()) if speed is None else (speed.slowdown, speed.uncounted)
    change = RunChange("changed", old_facts, new_facts, slowdown, uncounted, fields, settings, releases, *findings)
    return replace(change, kind="same") if _is_same(change) else change


def _is_same(change: RunChange) -> bool:
    """Return whether nothing differs; between frameworks, only fields count that both sides state or imply."""
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    if before.framework != after.framework:
        return all(item.before is None or item.after is None for item in change.fields)
    parts = (change.fields, change.settings, change.releases, change.new_findings, change.gone_findings)
    old, new = (replace(facts, path="", not_checked=None) for facts in (before, after))
    return not any(parts) and old == new


def _build_findings(findings: Iterable[Finding], result: Result) -> tuple[records.Finding, ...]:
    return tuple(json.list_findings(result._replace(findings=tuple(findings))))


def _build_facts(run: Run, redact: Redact) -> RunFacts:
    plan = run.plan
    model = plan.model.id or (None if run.architecture is None else run.architecture.id)
    return RunFacts(
        path=escape_data(run.main.document.path),
        framework=run.framework.name,
        release=run.releases.get(run.framework.name),
        model=None if model is None else escape_data(redact(str(model))),
        gpus=plan.world_size,
        peaks=tuple(peak for place in places.PLACES if (peak := _find_peak(run, place)) is not None),
        batch=plan.batch.global_,
        tokens_per_step=compute_tokens_per_step(run),
        sequence_length=plan.sequence.length,
        cost=build_cost(run),
        not_checked=None if (gap := find_gap(run)) is None else redact(gap.message),
    )


def _find_peak(run: Run, place: Resource) -> Peak | None:
    """Return the worst phase at a place, or None if the training step is not estimated."""
    if not run.estimate.has_step:
        return None
    judgement = places.judge_place(run, place)
    if judgement is not None:
        budget = judgement.budget
        sizes = (budget.expected, budget.low, judgement.high)
        return Peak(place, judgement.phase.name, *sizes, judgement.capacity, judgement.verdict)
    phase = run.estimate.find_peak(place)
    if phase is None:
        return None
    peak: Budget = getattr(phase, place)
    return Peak(place, phase.name, peak.expected, peak.low, peak.high, None, None)


def _compare_fields(before: Run, after: Run, redact: Redact) -> Iterator[FieldChange]:
    """Yield the fields and facts that differ; between frameworks, names of their own do not count.

    Nor do settings of an adapter that are stated on a side that trains none.
    """
    ignored = _OWN_NAMES if before.framework.name != after.framework.name else SPELLINGS
    for field in FIELDS:
        old, new = before.plan.get(field), after.plan.get(field)
        if field.startswith("method.lora_") and not (before.plan.trains_adapter and after.plan.trains_adapter):
            if not (after.plan.trains_adapter and _is_on(convert_value(new, redact))):
                continue
            old = None
        if field not in ignored and not is_equal(old, new):
            for name, earlier, later in _split_entries(field, old, new):
                yield FieldChange(name, convert_value(earlier, redact), convert_value(later, redact))
    for fact, attribute in (("gpu", "gpu"), ("host-memory", "host_bytes"), ("disk", "disk_bytes")):
        old, new = getattr(before.hardware, attribute), getattr(after.hardware, attribute)
        if old != new:
            yield FieldChange(fact, old, new)


def _split_entries(field: Field, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield a field with both values, or each entry that differs if the values are pairs of a name and a value."""
    if not all(_is_mapping(value) for value in (old, new)):
        yield field, old, new
        return
    before, after = dict(old), dict(new)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield f"{field}.{name}", before.get(name), after.get(name)


def _is_mapping(value: Any) -> bool:
    """Return whether a value of the plan is a tuple of pairs of a name and a value."""
    pairs = value if isinstance(value, tuple) else ()
    is_pair = (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in pairs)
    return bool(pairs) and all(is_pair)


def _compare_releases(before: Run, after: Run) -> Iterator[ReleaseChange]:
    """Yield the packages whose release differs; a package that only one run has does not count.

    Nor do pins of other frameworks, which the repository may have for other runs.
    """
    old, new = before.releases.by_package, after.releases.by_package
    for package in sorted((old.keys() & new.keys()) - (_list_foreign(before) & _list_foreign(after))):
        if old[package].version != new[package].version:
            is_own = package == after.framework.manifest.package and before.framework.name == after.framework.name
            keys = list_changed_keys(before.main, after.main) if is_own else ()
            yield ReleaseChange(package, old[package].version, new[package].version, tuple(map(escape_data, keys)))


def _list_foreign(run: Run) -> set[str]:
    """Return the packages of frameworks that the run's framework does not install, and that none of its files names."""
    manifests = list_frameworks()
    release = run.releases.get(run.framework.name)
    needed = set() if release is None else {*run.framework.list_installed(release)}
    needed |= {manifests[config.framework].package for config in run.configs}
    return {manifest.package for manifest in manifests.values()} - needed


def _list_findings(run: Run | None, result: Result) -> list[Finding]:
    """Return the findings about a run: those that name it, and those in its files that name no run."""
    if run is None:
        return []
    paths = {config.document.path for config in run.configs}
    name = (run.main.document.path, run.main.root)
    return [
        finding
        for finding in result.findings
        if (
            finding.path in paths
            if finding.run is None
            else (finding.run.main.document.path, finding.run.main.root) == name
        )
    ]


def _subtract(findings: Collection[Finding], others: Collection[Finding]) -> Iterator[Finding]:
    """Yield the findings without a counterpart: one with the same message, or else with the same code."""
    messages = Counter((other.code, other.message) for other in others)
    rest = []
    for finding in findings:
        if messages[finding.code, finding.message]:
            messages[finding.code, finding.message] -= 1
        else:
            rest.append(finding)
    codes = Counter[str]()
    for (code, _), number in messages.items():
        codes[code] += number
    for finding in rest:
        if codes[finding.code]:
            codes[finding.code] -= 1
        else:
            yield finding


# --- text ------------------------------------------------------------------------------------------------------------


def render_text(comparison: Comparison, style: Style = PLAIN) -> Iterator[str]:
    """Yield every run with its changed values, and a summary."""
    for change in comparison.runs:
        yield from _render_run(change, style)
        yield ""
    yield describe_comparison(comparison)


def describe_comparison(comparison: Comparison) -> str:
    """Return the numbers of runs by what happened to them, in a sentence."""
    kinds = Counter(change.kind for change in comparison.runs)
    total = len(comparison.runs) + comparison.unchanged
    if not total:
        return "no training run on either side"
    if kinds["same"] == total:
        is_port = len({facts.framework for facts in _list_sides(comparison.runs[0])}) == 2
        return f"the same run: no {'field of the plan' if is_port else 'setting'} differs"
    if total == kinds["changed"] == 1 and _has_two_files(comparison.runs[0]):
        return _describe_pair(comparison.runs[0])
    if not comparison.runs:
        return f"no change in {format_count(total, 'run')}"
    parts = [f"{kinds[kind]} {kind}" for kind in ("changed", "new", "removed") if kinds[kind]]
    unchanged = comparison.unchanged + kinds["same"]
    parts += [f"{unchanged} unchanged"] if unchanged else []
    return f"{format_count(total, 'run')}: {', '.join(parts)}"


def _describe_pair(change: RunChange) -> str:
    """Return the numbers of fields and of other settings that differ between two files, in a sentence."""
    fields, settings = len(_split_fields(change, frozenset())[0]), len(change.settings)
    verb = "differs" if fields + settings == 1 else "differ"
    if fields:
        others = f" and {format_count(settings, 'other setting')}" if settings else ""
        return f"not the same run: {format_count(fields, 'field')} of the plan{others} {verb}"
    if settings:
        return f"the same plan, but {format_count(settings, 'other setting')} {verb}"
    return "the same plan, but other releases, sizes or findings"


def _list_sides(change: RunChange) -> list[RunFacts]:
    """Return the run before and after a change, as far as there is one."""
    return [facts for facts in (change.before, change.after) if facts is not None]


def _has_two_files(change: RunChange) -> bool:
    return change.before is not None and change.after is not None and change.before.path != change.after.path


def _render_run(change: RunChange, style: Style) -> Iterator[str]:
    title, kind = _format_head(change)
    yield from wrap_text("", f"{title}  ({kind})", style, 4)
    fields, one_sided = _split_fields(change)
    rows = [*list_rows(change), *((item.field.removesuffix("_"), _format_change(item)) for item in fields)]
    width = max([len(name) for name, _ in rows], default=0)
    for name, value in rows:
        yield from wrap_text(f"  {name:<{width}}  ", escape_text(value), style, width + 6)
    for label, reason in _list_gaps(change):
        yield from wrap_text(f"  {label}: ", escape_text(reason), style, 6)
    for label, names in one_sided:
        yield from wrap_text(f"  {label}: ", escape_text(", ".join(names)), style, 6)
    for line in _list_setting_lines(change):
        yield from wrap_text("  ", escape_text(line), style, 6)
    for label, finding in _list_finding_changes(change):
        head = f"  {label} {finding.severity} {finding.code}: "
        yield from wrap_text(head, escape_text(finding.message), style, 6)


def _list_setting_lines(change: RunChange) -> Iterator[str]:
    """Yield each other setting with both values, and the number of those that are left out."""
    run_frameworks = {facts.framework for facts in _list_sides(change)}
    for item in change.settings[:_MAX_SETTINGS]:
        owner = "" if item.framework in run_frameworks else f"{list_frameworks()[item.framework].title} "
        yield f"{owner}setting {item.key}: {' -> '.join(_shorten_values(item))}"
    rest = len(change.settings) - _MAX_SETTINGS
    if rest > 0:
        yield f"and {format_count(rest, 'more setting')}"


def _shorten_values(item: SettingChange) -> Iterator[str]:
    """Yield both values; of long texts, only the part in which they differ."""
    texts = ["not set" if value is None else format_value(value) for value in (item.before, item.after)]
    common = next((index for index, letters in enumerate(zip(*texts)) if len({*letters}) == 2), min(map(len, texts)))
    start = max(0, common - _MAX_WIDTH // 2) if max(map(len, texts)) > _MAX_WIDTH else 0
    for text in texts:
        shown = text[start : start + _MAX_WIDTH]
        yield f"{'...' * (start > 0)}{shown}{'...' * (len(text) > start + _MAX_WIDTH)}"


def _list_gaps(change: RunChange) -> Iterator[tuple[str, str]]:
    """Yield `memory not checked` with the reason, and with the side if the other is checked or has another reason."""
    reasons = [facts.not_checked for facts in _list_sides(change)]
    sides = ("",) if len(set(reasons)) == 1 else (" before", " after")
    for side, reason in zip(sides, reasons):
        if reason is not None:
            yield f"memory not checked{side}", reason


def _list_finding_changes(change: RunChange) -> Iterator[tuple[str, records.Finding]]:
    """Yield `new` or `gone` with each finding, except those that only repeat why memory was not checked."""
    reasons = {f"memory not checked: {reason}" for _, reason in _list_gaps(change)}
    for label, findings in (("new", change.new_findings), ("gone", change.gone_findings)):
        for finding in findings:
            if finding.message not in reasons:
                yield label, finding


def _format_head(change: RunChange) -> tuple[str, str]:
    """Return the file of a run, or both files, and its framework with what happened to the run."""
    sides = _list_sides(change)
    names, frameworks = (dict.fromkeys(values) for values in zip(*((facts.path, facts.framework) for facts in sides)))
    kind = "" if change.kind in ("changed", "same") else f", {change.kind}"
    return escape_line_start(escape_text(" -> ".join(names))), f"{' -> '.join(frameworks)}{kind}"


def _split_fields(
    change: RunChange, omitted: Collection[str] = _HEADLINES
) -> tuple[list[FieldChange], list[tuple[str, list[str]]]]:
    """Return the fields to show with both values, and the names of those that only one framework states."""
    fields = [item for item in change.fields if item.field not in omitted]
    before, after = change.before, change.after
    if before is None or after is None or before.framework == after.framework:
        return fields, []
    two_sided = [item for item in fields if item.before is not None and item.after is not None]
    sides = [
        (f"not known in {before.path}", [item.field for item in fields if item.before is None and _is_on(item.after)]),
        (f"not known in {after.path}", [item.field for item in fields if item.after is None and _is_on(item.before)]),
    ]
    return two_sided, [(label, names) for label, names in sides if names]


def _is_on(value: str | float | bool | None) -> bool:
    """Return whether a value switches something on; fields that one side leaves unknown are named only then."""
    return bool(value) and value != "none"


def list_rows(change: RunChange) -> list[tuple[str, str]]:
    """Return the labels and values of the lines that every run has; a value that changes has both sides."""
    sides = _list_sides(change)
    rows = [(_PLACE_NAMES[place], _format_peaks(sides, place)) for place in places.PLACES]
    rows.append(("speed", _format_speed(change)))
    rows += [
        ("effective batch", _join_sides([facts.batch for facts in sides])),
        ("tokens per step", _join_sides([facts.tokens_per_step for facts in sides])),
        ("sequence", _join_sides([facts.sequence_length for facts in sides])),
        ("time, cost", _format_costs(sides)),
    ]
    rows += _list_releases(change)
    return [(name, value) for name, value in rows if value]


def _format_speed(change: RunChange) -> str:
    """Return `about 7 % slower per token, not counting optimizer.name`, or nothing if no effect is known."""
    if change.slowdown is None:
        return ""
    names = [name.removesuffix("_") for name in change.uncounted]
    rest = f", not counting {_format_names(names)}" if names else ""
    return f"{format_slowdown(change.slowdown)} per token{rest}"


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_KEYS]) + (", ..." if len(names) > _MAX_KEYS else "")


def _join_sides(values: Sequence[Any]) -> str:
    """Return `a -> b`, or the value alone if both are equal; return nothing if neither is known."""
    if all(value is None for value in values):
        return ""
    return " -> ".join(dict.fromkeys(map(_format_number, values)))


def _format_number(value: Any) -> str:
    return _UNKNOWN if value is None else f"{value:,}" if type(value) is int else format_value(value)


def _format_peaks(sides: Sequence[RunFacts], place: Resource) -> str:
    """Return `61.2 -> 74.8 of 79.1 GiB (fits -> tight)`, or nothing if no side is estimated."""
    peaks = [next((peak for peak in facts.peaks if peak.place == place), None) for facts in sides]
    if all(peak is None for peak in peaks):
        return ""
    sizes = [_UNKNOWN if peak is None else format_gib(peak.expected) for peak in peaks]
    limits = [None if peak is None or peak.capacity is None else format_gib(peak.capacity) for peak in peaks]
    if len(set(limits)) == 1 and None not in peaks:
        text = " -> ".join(dict.fromkeys(size.removesuffix(" GiB") for size in sizes))
        text += " GiB" if limits[0] is None else f" of {limits[0]}"
    else:
        text = " -> ".join(size if limit is None else f"{size} of {limit}" for size, limit in zip(sizes, limits))
    verdicts = dict.fromkeys(peak.verdict for peak in peaks if peak is not None and peak.verdict is not None)
    return f"{text} ({' -> '.join(verdicts)})" if verdicts else text


def _format_costs(sides: Sequence[RunFacts]) -> str:
    costs = [facts.cost for facts in sides]
    if all(cost is None for cost in costs):
        return ""
    texts = (_UNKNOWN if cost is None else format_cost(cost) for cost in costs)
    return f"{' -> '.join(dict.fromkeys(texts))} at the stated throughput"


def _list_releases(change: RunChange) -> Iterator[tuple[str, str]]:
    """Yield the lines with the framework's release, and with those of all other packages."""
    frameworks = {facts.framework for facts in _list_sides(change)}
    others = []
    for item in change.releases:
        if item.package in frameworks:
            yield "release", _format_release(item)
        else:
            others.append(_format_release(item))
    if others:
        yield "packages", ", ".join(others)


def _format_release(item: ReleaseChange) -> str:
    keys = _format_names(item.keys)
    verb = "changes" if len(item.keys) == 1 else "change"
    note = f" ({format_count(len(item.keys), 'key')} {verb} meaning: {keys})" if item.keys else ""
    return f"{item.package} {item.before} -> {item.after}{note}"


def _format_change(item: FieldChange) -> str:
    if item.field in ("host-memory", "disk"):
        sizes = (item.before, item.after)
        return " -> ".join(format_gib(size) if isinstance(size, (int, float)) else _UNKNOWN for size in sizes)
    return f"{_format_number(item.before)} -> {_format_number(item.after)}"


# --- JSON and Markdown -----------------------------------------------------------------------------------------------


def render_json(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison as indented JSON; sizes are in bytes."""
    yield json.encode({"version": VERSION, **json.convert_record(comparison)})


def render_markdown(comparison: Comparison, limit: int = MAX_BYTES) -> Iterator[str]:
    """Yield the comparison as GitHub-flavored Markdown: a table of runs, then the other changes of each.

    `limit`: approximate size in bytes after which the rest is omitted.
    """
    yield from ("### Changed runs", "", f"{escape_cell(describe_comparison(comparison))}.", "")
    shown = [change for change in comparison.runs if change.kind != "same"][:_MAX_RUNS]
    if not shown:
        return
    labels = dict.fromkeys(name for change in shown for name, _ in list_rows(change))
    head = f"| Run | {' | '.join(label.capitalize().replace('gpu', 'GPU') for label in labels)} |"
    yield from (head, "|---" * (len(labels) + 1) + "|")
    blocks: list[list[str]] = [[_render_row(change, labels)] for change in shown]
    blocks += [[""], *(list(_render_details(change)) for change in shown)]
    size = 0
    for block in blocks:
        size += sum(len(line.encode()) + 1 for line in block)
        if size > limit:
            yield from ("", "The other changes are omitted because GitHub limits the size.", "")
            return
        yield from block
    if len(comparison.runs) > len(shown) == _MAX_RUNS:
        yield from (f"{len(comparison.runs) - len(shown)} more runs are not listed.", "")


def _render_row(change: RunChange, labels: Iterable[str]) -> str:
    cells: dict[str, str] = {}
    for name, value in list_rows(change):
        cells[name] = f"{cells[name]}<br>{_render_cell(value)}" if name in cells else _render_cell(value)
    return f"| {_format_cell_head(change)} | {' | '.join(cells.get(label, '') for label in labels)} |"


def _format_cell_head(change: RunChange) -> str:
    sides = _list_sides(change)
    names = " → ".join(dict.fromkeys(f"<code>{escape_cell(facts.path)}</code>" for facts in sides))
    return names if change.kind == "changed" else f"{names} ({change.kind})"


def _render_cell(value: str) -> str:
    return render_message(value.replace(" -> ", " → "))


def _render_details(change: RunChange) -> Iterator[str]:
    fields, one_sided = _split_fields(change)
    lines = [f"{item.field.removesuffix('_')}: {_format_change(item)}" for item in fields]
    lines += _list_setting_lines(change)
    lines += [f"{label}: {reason}" for label, reason in _list_gaps(change)]
    lines += [f"{label}: {', '.join(names)}" for label, names in one_sided]
    lines += [
        f"{label} {finding.severity} {finding.code}: {finding.message}"
        for label, finding in _list_finding_changes(change)
    ]
    if lines:
        title = f"{_format_cell_head(change)}: {format_count(len(lines), 'more change')}"
        yield from ("<details>", f"<summary>{title}</summary>", "")
        yield from (*(f"- {_render_cell(line)}" for line in lines), "", "</details>", "")
