"""Section files: sections that a config names as a JSON file, such as TrainingArguments' `fsdp_config: fsdp.json`.

Sources: transformers 4.30.0 to 5.24.0 `training_args.py` (`__post_init__`: json.load), `trainer_pt_utils.py`
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


def merge_section_files(main: Config, sources: Sources, repositories: Repositories) -> Config:
    """Return the config with the settings of its section files, or unchanged if it does not name a readable file."""
    overrides: dict[Route, Override] = {}
    for name in load(main.framework).traits.section_files:
        stated_path = main.get(name)
        if not isinstance(stated_path, str) or not stated_path or stated_path.lstrip().startswith("{"):
            continue
        referring_file, assumption = main.document.path, ""
        path = sources.find(stated_path, referring_file)
        if (
            path is None
            and (tail_match := repositories.get_index(referring_file).find_by_suffix(stated_path, referring_file))
            is not None
        ):
            path = sources.format_path(tail_match, referring_file)
            assumption = f"`{stated_path}` is `{path}` of this repository; name it by that path to be sure"
        document = None if path is None else _parse_json(path, sources)
        if document is not None:
            overrides.update(_list_settings(name, document, assumption))
    return main.replace(overrides={**main.overrides, **overrides}) if overrides else main


def _parse_json(path: str, sources: Sources) -> Document | None:
    """Return the parsed JSON file, or None if it cannot be read, `json.load` rejects it, or it is not an object."""
    try:
        source = sources.read(path)
        loads(source)
        document = files.parse(path, source, "json")
    except (OSError, ValueError, RecursionError, DocumentError):
        return None
    return document if isinstance(document.root, Mapping) else None


def _list_settings(name: str, document: Document, assumption: str) -> Iterator[tuple[Route, Override]]:
    """Yield the section as a whole, then each of its settings with its own place."""
    value = document.get_value()
    assert isinstance(document.root, Mapping)
    top = Place(document, Span(document.root.span.start, document.find_line_end(document.root.span.start)))
    yield (name,), Override(value, Origin("user", top, document.path, name, assumption=assumption))
    for key, entry in document.root.index.items():
        span = entry.span if isinstance(entry.value, Scalar) else entry.key.span
        origin = Origin("user", Place(document, span), document.path, f"{name}.{key}", assumption=assumption)
        yield (name, key), Override(value[key], origin)
