"""Dataset files: the JSON file that describes the data sets which a config names, and the samples beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from json import loads

from cfglint_train.documents.document import Document, DocumentError
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.repository import files
from cfglint_train.repository.clues import Clues
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_PROGRAMS: Final = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".job", ".ipynb", *files.RECIPES)
"""Extensions and names of files whose programs may write a dataset file."""


class DatasetFile(Frozen):
    """A JSON file that maps names of data sets to their descriptions."""

    path: str
    document: Document | None
    """Parsed file, or None if its reader rejects it."""
    problem: str
    """Reason why its reader, `json.load`, rejects the file; empty if it does not."""
    writer: str
    """Program of the repository that may write the file; empty if there is none."""
    read_samples: Callable[[str], tuple[Mapping[str, Any], ...] | None]
    """Function that reads the samples of a file in the same folder.

    It returns None if the repository lacks the file, or if the file is too large or no list of JSON objects.
    """
    other_names: frozenset[str] = frozenset()
    """Data sets in the repository's other files of this name, which a run in another folder reads."""
    assumption: str = ""
    """Assumption under which a run reads this file; empty if there is none."""
    is_in_copy: bool = False
    """True if the file and the config that needs it belong to the same copy of the framework."""


def read_dataset_file(
    path: str, sources: Sources, index: RepositoryIndex, find_copy: Callable[[str], str]
) -> DatasetFile | None:
    """Return the dataset file at a path, or None if it cannot be read or is not a JSON object."""
    try:
        source = sources.read(path)
    except (OSError, ValueError):
        return None
    document, problem = None, ""
    try:
        loads(source.decode())
        document = files.parse(path, source, "json")
    except (ValueError, RecursionError) as error:
        problem = str(error)
    except DocumentError:
        return None
    if len(source) > regular_files.MAX_BYTES or not (problem or isinstance(document and document.root, MappingNode)):
        return None
    read, folder = sources.build_reader(path), os.path.dirname(path)

    def read_samples(name: str) -> tuple[Mapping[str, Any], ...] | None:
        return _parse_samples(read(os.path.abspath(os.path.join(folder, name))), name)

    writer, names = _find_writer(index, os.path.basename(path), find_copy), _list_other_names(index, path, sources)
    return DatasetFile(path, document, problem, writer, read_samples, names)


def _list_other_names(index: RepositoryIndex, path: str, sources: Sources) -> frozenset[str]:
    """Return the names in the repository's other dataset files."""
    names: set[str] = set()
    for other in index.find_by_name(os.path.basename(path)):
        try:
            content = {} if other == regular_files.normalize_path(os.path.abspath(path)) else loads(sources.read(other))
        except (OSError, ValueError, RecursionError):
            continue
        names.update(content if isinstance(content, dict) else ())
    return frozenset(names)


def _find_writer(index: RepositoryIndex, basename: str, find_copy: Callable[[str], str]) -> str:
    """Return a program that names a dataset file outside the copies of frameworks, or an empty string."""
    clues: Clues = dict.fromkeys(_PROGRAMS, (basename.encode(),))
    programs = (path for path in index.find_with_clues(clues) if not find_copy(path))
    return next((os.path.relpath(path, index.root) for path in programs), "")


def _parse_samples(source: bytes | None, name: str) -> tuple[Mapping[str, Any], ...] | None:
    """Return the samples of a JSON file (a list, or an object per line), or None if it has another form."""
    if source is None or len(source) > regular_files.MAX_BYTES or not name.endswith((".json", ".jsonl")):
        return None
    try:
        text = source.decode()
        samples = (
            loads(text) if text.lstrip()[:1] == "[" else [loads(line) for line in text.splitlines() if line.strip()]
        )
    except (ValueError, RecursionError):
        return None
    is_table = isinstance(samples, list) and samples and all(isinstance(sample, dict) for sample in samples)
    return tuple(samples) if is_table else None
