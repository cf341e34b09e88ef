"""Laws that the lenses of every framework obey, as checks over one configuration.

get-put: writing the values just read changes no byte. put-get: reading after a write returns exactly that change.
minimal: comments, line endings, the byte-order mark and the end of the file stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfglint_train.documents.document import BOM, CannotEdit, Document, Route, apply_edits
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, Lens
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import ResolvedPlan, find_changed_fields
from cfglint_train.plan.releases import Release, Releases

# A spelling changes whenever its setting changes.
SPELLINGS = frozenset(("optimizer.stated_name",))


def parse_document(source: bytes | str, syntax: str, path: str = "x") -> Document:
    data = source.encode() if isinstance(source, str) else source
    if syntax == "yaml":
        from cfglint_train.documents.yaml.document import YamlDocument

        return YamlDocument(path, data)
    if syntax == "json":
        from cfglint_train.documents.json import JsonDocument

        return JsonDocument(path, data)
    if syntax == "python":
        from cfglint_train.documents.python.document import PythonDocument

        return PythonDocument(path, data)
    if syntax == "shell":
        from cfglint_train.documents.shell.document import ShellDocument

        return ShellDocument(path, data)
    raise AssertionError(syntax)


def build_releases(framework: str, **stated: str) -> Releases:
    """Return the stated releases; the framework defaults to its newest release, with the packages it pins."""
    loaded = frameworks.load(framework)
    releases = {name: Release(version, Origin("user", note="test")) for name, version in stated.items()}
    releases.setdefault(framework, Release(loaded.default_release, Origin("assumed")))
    pinned = loaded.list_installed(releases[framework].version)
    return Releases(releases).add_defaults({name: Release(v, Origin("inferred")) for name, v in pinned.items()})


def build_config(
    framework: str,
    source: bytes | str,
    syntax: str = "yaml",
    root: Route = (),
    role: str = "main",
    path: str = "x",
    **stated: str,
) -> Config:
    document = parse_document(source, syntax, path)
    frameworks.load(framework).prepare(document)
    return Config(framework, document, build_releases(framework, **stated), root, role)


def read_plan(config: Config) -> ResolvedPlan:
    return frameworks.read_config(config)


def find_lens(config: Config, field: str) -> Lens:
    """Return the lens that determines a field: the last one that reads it."""
    return next(lens for lens in reversed(frameworks.load(config.framework).lenses) if field in lens.fields)


def list_routes(lens: Lens) -> set[Route]:
    """Return every key that a lens reads."""
    return {*(route for names in lens.keys.values() for route in names), *getattr(lens, "other_keys", ())}


def write_fields(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the configuration after new values of plan fields; raise CannotEdit if they cannot be written."""
    by_lens: dict[int, tuple[Lens, dict[str, Any]]] = {}
    for field, value in changes.items():
        lens = find_lens(config, field)
        by_lens.setdefault(id(lens), (lens, {}))[1][field] = value
    keys = [change for lens, field_changes in by_lens.values() for change in lens.write(config, field_changes)]
    source = apply_edits(config.document.source, config.document.build_edits(keys))
    document = type(config.document)(config.document.path, source)
    frameworks.load(config.framework).prepare(document)
    after = Config(config.framework, document, config.releases, config.root, config.role, config.overrides)
    after.evidence = config.evidence
    if config.root:
        _copy_dialect(config.document, document)
    return after


def _copy_dialect(before: Document, after: Document) -> None:
    dialect = getattr(before, "dialect", None)
    if dialect is not None:
        after.set_dialect(dialect)  # type: ignore[attr-defined]


def check_get_put(config: Config) -> int:
    """Assert that writing any present value changes nothing; return the number of fields that were checked."""
    reading = read_plan(config)
    for field, value in reading:
        lens = find_lens(config, field)
        assert lens.write(config, {field: value.value}) == [], (config.document.path, field, value)
    return len(reading.values)


def check_put_get(config: Config, changes: Mapping[str, Any]) -> Config | None:
    """Assert that a write makes exactly the given changes and alters nothing else; None if it cannot be written."""
    before = read_plan(config)
    try:
        after = write_fields(config, changes)
    except CannotEdit as error:
        if not str(error):
            raise AssertionError("a refusal says why") from error
        return None
    differences = {k: v for k, v in find_changed_fields(before, read_plan(after)).items() if k not in SPELLINGS}
    expected = {field: value for field, value in changes.items() if before.get(field) != value}
    assert differences == expected, (config.document.path, differences, expected)
    check_preserved(config.document, after.document)
    check_get_put(after)
    return after


def check_preserved(before: Document, after: Document) -> None:
    """Assert that byte-order mark, comments, line endings and the end of the file are unchanged."""
    assert before.source.startswith(BOM) == after.source.startswith(BOM)
    assert [c.text for c in before.list_comments()] == [c.text for c in after.list_comments()]
    if b"\r\n" in before.source and b"\n" not in before.source.replace(b"\r\n", b""):
        assert b"\n" not in after.source.replace(b"\r\n", b"")
    if b"\r" not in before.source:
        assert b"\r" not in after.source
    if before.source.strip():
        assert before.source.endswith(b"\n") == after.source.endswith(b"\n")
