"""Sections of a configuration that it gives as the name of a JSON file: TrainingArguments' `fsdp_config: fsdp.json`.

transformers 4.30.0 to 5.24.0 `training_args.py` (`__post_init__`: json.load), `trainer_pt_utils.py`
(AcceleratorConfig.from_json_file).
"""

from __future__ import annotations

from collections.abc import Iterator
from json import loads

from cfglint_train.documents.document import Document, DocumentError, Mapping, Route, Scalar, Span
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.repository import files
from cfglint_train.repository.index import Repositories
from cfglint_train.repository.sources import Sources


def with_sections(main: Config, sources: Sources, repositories: Repositories) -> Config:
    """The configuration with the settings of such files laid into it; unchanged where it names none that is there."""
    laid: dict[Route, Override] = {}
    for name in load(main.framework).traits.section_files:
        stated = main.get(name)
        if not isinstance(stated, str) or not stated or stated.lstrip().startswith("{"):
            continue
        beside, assumed = main.document.path, ""
        path = sources.find(stated, beside)
        if path is None and (found := repositories.index(beside).by_tail(stated, beside)) is not None:
            path = sources.named(found, beside)
            assumed = f"`{stated}` is `{path}` of this repository; name it by that path to be sure"
        document = None if path is None else _read(path, sources)
        if document is not None:
            laid.update(_settings(name, document, assumed))
    return main.altered(overrides={**main.overrides, **laid}) if laid else main


def _read(path: str, sources: Sources) -> Document | None:
    """A file as JSON; None where `json.load` refuses it, or it is no mapping."""
    try:
        source = sources.read(path)
        loads(source)
        document = files.parse(path, source, "json")
    except (OSError, ValueError, RecursionError, DocumentError):
        return None
    return document if isinstance(document.root, Mapping) else None


def _settings(name: str, document: Document, assumed: str) -> Iterator[tuple[Route, Override]]:
    """The section as a whole, and each of its settings at its own place."""
    whole = document.value()
    assert isinstance(document.root, Mapping)
    top = Place(document, Span(document.root.span.start, document.line_end(document.root.span.start)))
    yield (name,), Override(whole, Origin("user", top, document.path, name, assumed=assumed))
    for key, entry in document.root.index.items():
        span = entry.span if isinstance(entry.value, Scalar) else entry.key.span
        origin = Origin("user", Place(document, span), document.path, f"{name}.{key}", assumed=assumed)
        yield (name, key), Override(whole[key], origin)
