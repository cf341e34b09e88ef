"""Settings files that a script reads: `yaml.safe_load(open("configs/base.yaml"))`, `OmegaConf.load`, `@hydra.main`.

The file's mappings become records, and each value keeps the place in the file (`Step` of the kind `file`), so that a
finding about the value points to the key that the user would edit. A path of the script is a string, or the `path` of
an unknown value if it starts at `__file__`. A path is looked up in the script's folder and in those above it. If
several of them have the file, it is unknown which one the script reads.

Sources: PyYAML 6.0 `__init__.py`; omegaconf 2.3.0 `omegaconf.py`, `_utils.py`; hydra 1.3 `main.py`,
`core/default_element.py`, `_internal/defaults_list.py`, `_internal/config_loader_impl.py`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from functools import partial, reduce

from cfglint_train.documents.document import (
    Document,
    DocumentError,
    Entry,
    Node,
    Scalar,
    Sequence,
    Span,
    Unknown,
    follow,
)
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.modules import find_single_file, parse_text
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import Arguments, External, FileText, Function, Partial, get_path
from cfglint_train.foundation.typed import Any, Final

_YAML_LOADERS: Final = frozenset(
    f"yaml.{prefix}{name}" for prefix in ("", "C") for name in ("SafeLoader", "FullLoader", "UnsafeLoader", "Loader")
)
_MAX_DEFAULTS: Final = 30
"""Maximum number of files that hydra's defaults lists may add to a configuration."""


def evaluate_library(evaluator: Evaluator, name: str, arguments: Arguments, node: ast.Call) -> Any:
    """Return the result of a library function that makes a path or reads a settings file, or None for any other."""
    function = _FUNCTIONS.get(name)
    return None if function is None else function(evaluator, arguments, node)


def evaluate_method(evaluator: Evaluator, owner: Any, name: str, arguments: Arguments, node: ast.Call) -> Any:
    """Return the result of a method of a path, such as `Path("base.yaml").read_text()`, or None for any other."""
    path = get_path(owner) if isinstance(owner, Value) else None
    if path is None and not (isinstance(owner, Value) and _is_option(owner)):
        return None
    if name in ("read_text", "read_bytes", "open"):
        return _open_file(evaluator, arguments._replace(positional=(owner,)), node)
    if name in ("resolve", "absolute", "expanduser", "as_posix"):
        return owner
    return _join_paths(evaluator, (owner, *arguments.positional), node) if name == "joinpath" else None


def evaluate_path_attribute(evaluator: Evaluator, owner: Value, name: str, node: ast.expr) -> Value | None:
    """Return `Path("a/b").parent`, or None if the attribute is not one of a path or its value is unknown."""
    path = get_path(owner)
    if path is None:
        return None
    if name == "parent":
        return _build_path(evaluator, owner, os.path.dirname(path) or ".", node)
    if name in ("name", "stem"):
        base = os.path.basename(path)
        return Value(
            evaluator.document.find_span(node), base if name == "name" else os.path.splitext(base)[0], owner.how
        )
    return None


def evaluate_parents(evaluator: Evaluator, node: ast.Subscript, owner: Any, index: Any) -> Value | None:
    """Return `Path(__file__).parents[1]`, given the path and the index."""
    path = get_path(owner) if isinstance(owner, Value) else None
    if path is None or not isinstance(index, Value) or type(index.value) is not int or not 0 <= index.value < 10:
        return None
    for _ in range(index.value + 1):
        path = os.path.dirname(path) or "."
    return _build_path(evaluator, owner, path, node)


def join_paths(evaluator: Evaluator, left: Value, right: Value, node: ast.expr) -> Value | None:
    """Return `folder / "base.yaml"`, or None if either side is not known."""
    return _join_paths(evaluator, (left, right), node)


def _join_paths(evaluator: Evaluator, parts: tuple[Any, ...], node: ast.expr) -> Value | None:
    paths = [get_path(part) if isinstance(part, Value) else None for part in parts]
    if not paths or None in paths or any(isinstance(part.value, Unknown) for part in parts[1:]):
        return None
    joined = os.path.join(*[path for path in paths if path is not None])
    how = tuple(step for part in parts for step in part.how)
    return _build_path(evaluator, Value(parts[0].span, parts[0].value, how), joined, node)


def _build_path(evaluator: Evaluator, source: Value, path: str, node: ast.expr) -> Value:
    """Return a path derived from another one; it is unknown if that one starts at the script's own folder."""
    span = evaluator.document.find_span(node)
    if isinstance(source.value, Unknown):
        return Value(span, Unknown(evaluator.document.get_short_text(span), path), source.how)
    return Value(span, path, source.how)


def _make_path(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `Path(...)` and `os.path.join(...)`."""
    if not arguments.is_complete:
        return None
    path = _join_paths(evaluator, arguments.positional, node)
    owner = arguments.positional[0] if arguments.positional else None
    if path is None and len(arguments.positional) == 1 and isinstance(owner, Value) and _is_option(owner):
        path = Value(owner.span, Unknown(evaluator.document.get_short_text(owner.span)), owner.how)
    return path


def _is_option(value: Value) -> bool:
    """Return whether a value is that of an option, as a launch may pass it."""
    return any(step.kind == "option" for step in value.how)


def _keep_path(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `os.path.abspath(path)`."""
    owner = arguments.positional[0] if arguments.positional else None
    return owner if isinstance(owner, Value) and get_path(owner) is not None else None


def _get_folder(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `os.path.dirname(path)`."""
    owner = _keep_path(evaluator, arguments, node)
    return None if owner is None else evaluate_path_attribute(evaluator, owner, "parent", node)


def _open_file(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> FileText | None:
    """Handle `open(path)`; None if it writes or its path is unknown."""
    owner = arguments.positional[0] if arguments.positional else arguments.get("file")
    mode = arguments.positional[1] if len(arguments.positional) > 1 else arguments.get("mode")
    is_read = mode is None or (isinstance(mode, Value) and mode.value in ("r", "rb", "rt"))
    path = get_path(owner) if isinstance(owner, Value) else None
    if not path and isinstance(owner, Value) and _is_option(owner) and is_read:
        return FileText("", owner.how)
    return FileText(path, owner.how) if path and is_read else None


def _load(evaluator: Evaluator, arguments: Arguments, node: ast.Call, loader: str) -> Any:
    """Return what a loader makes of an opened file, or None if the file cannot be determined."""
    source = arguments.positional[0] if arguments.positional else arguments.get("stream")
    if not isinstance(source, FileText):
        return None
    if not source.path:
        evaluator.awaits_file = True
        return None
    file = find_single_file(evaluator.document, source.path, loader)
    if file is None or (file.syntax == "json" and file.problems):
        return None
    # The default of `--config` decides which file is read; what the file states holds for every run that reads it.
    how = tuple(step for step in source.how if step.kind == "depends")
    return _build_tree(evaluator, file, file.root, evaluator.document.find_span(node), how)


def _load_yaml(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `yaml.safe_load(...)`; None for a loader of the script's own, which may read values in another way."""
    loader = arguments.get("Loader") or (arguments.positional[1] if len(arguments.positional) > 1 else None)
    is_known = loader is None or (isinstance(loader, External) and loader.name in _YAML_LOADERS)
    # A script adds a resolver so that `2e-5` is a number, as OmegaConf reads it.
    dialect = "omegaconf" if b"add_implicit_resolver" in evaluator.document.source else "yaml"
    return _load(evaluator, arguments, node, dialect) if is_known else None


def _load_json(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    return _load(evaluator, arguments, node, "json")


def _load_omegaconf(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    opened = _open_file(evaluator, arguments, node)
    stream = arguments if opened is None else arguments._replace(positional=(opened,))
    return _load(evaluator, stream, node, "omegaconf")


def _build_tree(
    evaluator: Evaluator,
    file: Document,
    node: Node | None,
    span: Span,
    how: tuple[Step, ...],
    steps: tuple[Step, ...] = (),
) -> Any:
    """Return a node of a settings file as the value of the call at `span`.

    `how` leads to the file, `steps` to the node in it. The depth is bounded: no document is deeper than `MAX_DEPTH`.
    """
    evaluator.spend_steps()
    node = None if node is None else follow(node)
    if isinstance(node, MappingNode):
        record = Record(span, [])
        record.sealed = f"it is read from {file.path}"
        record.level = len(evaluator.open_conditions)
        record.how = (*steps, *how)
        for name, entry in node.index.items():
            if not isinstance(entry.key, Scalar) or not isinstance(file.get_scalar_value(entry.key), str):
                record.open = "some of its keys are not strings"
                continue
            place = entry.span if isinstance(entry.value, Scalar) else entry.key.span
            step = Step("file", f"{file.path}:{file.locate(place.start).line}", place, file)
            value = _build_tree(evaluator, file, entry.value, span, how, (step,))
            evaluator.put(record, Entry(Scalar(span, name, value=name), value))
        return record
    if isinstance(node, Sequence):
        return Sequence(span, [_build_tree(evaluator, file, item, span, how, steps) for item in node.items], True)
    value = None if node is None else file.get_scalar_value(node)  # type: ignore[arg-type]
    if isinstance(value, str) and "${" in value:
        value = Unknown(value)  # OmegaConf or the script replaces it
    elif value is not None and not isinstance(value, (bool, int, float, str, Unknown)):
        value = Unknown(str(value))
    return Value(span, value, (*steps, *how))


# --- OmegaConf and hydra ---------------------------------------------------------------------------------------------


def merge_records(evaluator: Evaluator, first: Record, second: Record) -> Record:
    """Return `OmegaConf.merge(first, second)`: the keys of the second win, sections are merged."""
    merged = evaluator.copy_record(first)
    merged.open = first.open or second.open
    for entry in second.entries:
        present = merged.get(entry.name or "")
        value = entry.value
        if present is not None and isinstance(present.value, Record) and isinstance(value, Record):
            value = merge_records(evaluator, present.value, value)
        evaluator.put(merged, Entry(entry.key, value))
    return merged


def _merge(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `OmegaConf.merge(...)`; unknown unless all mappings are known."""
    records = arguments.positional
    if not records or not arguments.is_complete or not all(isinstance(item, Record) for item in records):
        return None
    if any(item.implicit for item in records):
        return None
    return reduce(partial(merge_records, evaluator), records)


def _read_command_line(evaluator: Evaluator, arguments: Arguments, node: ast.Call) -> Any:
    """Handle `OmegaConf.from_cli()`: the words `training.lr=1e-5` of the launch."""
    if arguments.positional or arguments.keywords:
        return None
    span = evaluator.document.find_span(node)
    record = Record(span, [])
    record.level = len(evaluator.open_conditions)
    for word in evaluator.launch_words:
        name, sign, text = word.partition("=")
        if sign:
            _set_word(evaluator, record, name, text, span)
    return record


def _set_word(evaluator: Evaluator, record: Record, name: str, text: str, span: Span) -> None:
    """Set a dotted key of a record to the value of a launch's word, as YAML."""
    *outer, last = name.split(".")
    for step in outer:
        present = record.get(step)
        if present is None or not isinstance(present.value, Record):
            part = Record(span, [])
            part.level = record.level
            evaluator.put(record, Entry(Scalar(span, step, value=step), part))
            record = part
        else:
            record = present.value
    value: Any
    try:
        words = parse_text(text, "omegaconf")
        value = _build_tree(evaluator, words, words.root, span, ())
    except DocumentError:
        value = Value(span, Unknown(text))
    evaluator.put(record, Entry(Scalar(span, last, value=last), value))


def bind_hydra(evaluator: Evaluator, function: Function, decorators: list[Any]) -> Any:
    """Return a function with the configuration that `@hydra.main` passes to it, or the function itself."""
    for decorator in decorators:
        if isinstance(decorator, ast.Call):
            target = evaluator.evaluate(decorator.func, function.scope)
            if getattr(target, "name", "") in ("hydra.main", "hydra.main.main"):
                record = _compose_hydra(evaluator, function, decorator)
                return function if record is None else Partial(function, Arguments((record,)))
    return function


def _compose_hydra(evaluator: Evaluator, function: Function, decorator: ast.Call) -> Record | None:
    values: dict[str, Any] = dict(zip(("config_path", "config_name", "version_base"), decorator.args))
    values.update({keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg})
    stated = {name: evaluator.evaluate(value, function.scope) for name, value in values.items()}
    folder, name = (getattr(stated.get(key), "value", None) for key in ("config_path", "config_name"))
    if not isinstance(folder, str) or not isinstance(name, str):
        return None
    place = os.path.join(os.path.dirname(os.path.abspath(evaluator.document.path)), folder)
    composer = _Composer(evaluator, place, evaluator.document.find_span(decorator))
    record = composer.compose(name.removesuffix(".yaml"))
    return None if record is None or not composer.apply_words(record) else record


class _Composer:
    """The composition of hydra's configuration from the primary file and its defaults list."""

    def __init__(self, evaluator: Evaluator, folder: str, span: Span) -> None:
        """Store the configuration folder, and the place in the script that stands for the configuration."""
        self.evaluator = evaluator
        self.folder = folder
        self.span = span
        self.files_left = _MAX_DEFAULTS
        words = [word.partition("=") for word in evaluator.launch_words]
        self.words = {name.lstrip("+"): text for name, sign, text in words if sign and not name.startswith("-")}
        """Settings and groups that the launch overrides."""
        self.is_opaque = any(name.startswith(("~", "-")) for name, _, _ in words)
        """True if the launch selects another configuration or removes a setting."""
        self.groups: set[str] = set()

    def apply_words(self, record: Record) -> bool:
        """Apply the launch's words to the configuration; return whether all of them are understood."""
        for name, text in self.words.items():
            if name not in self.groups and not name.startswith("hydra"):
                _set_word(self.evaluator, record, name, text, self.span)
        return not self.is_opaque

    def compose(self, name: str, is_part: bool = False) -> Record | None:
        """Return the configuration of a file, or None if a part of it cannot be determined.

        A part of another configuration must not name its package.
        """
        self.files_left -= 1
        file = find_single_file(self.evaluator.document, os.path.join(self.folder, f"{name}.yaml"), "omegaconf")
        if file is None or self.files_left < 0 or not isinstance(file.root, MappingNode):
            return None
        if is_part and b"@package" in file.source:
            return None
        primary: Record = _build_tree(self.evaluator, file, file.root, self.span, ())
        defaults = primary.get("defaults")
        primary.drop("defaults")
        primary.drop("hydra")
        if defaults is None:
            return primary
        parts: list[Record] = []
        has_self = False
        for item in defaults.value.items if isinstance(defaults.value, Sequence) else [None]:
            part = primary if isinstance(item, Value) and item.value == "_self_" else self._add_default(item, name)
            if part is None:
                return None
            has_self = has_self or part is primary
            parts.append(part)
        return reduce(partial(merge_records, self.evaluator), parts if has_self else [*parts, primary])

    def _add_default(self, item: Any, parent: str) -> Record | None:
        """Return the part that an item of a defaults list adds, or None if the item is not understood."""
        group = os.path.dirname(parent)
        if isinstance(item, Value) and isinstance(item.value, str):
            path = item.value
            package = os.path.dirname(path)
        elif isinstance(item, Record) and len(item.entries) == 1 and not item.open:
            (entry,) = item.entries
            key = entry.name or ""
            if key.startswith("override hydra/"):
                return Record(self.span, [])
            choice = entry.value.value if isinstance(entry.value, Value) else None
            choice = self.words.get(key, choice)
            self.groups.add(key)
            if not isinstance(choice, str) or " " in key or "@" in key:
                return None
            path, package = f"{key}/{choice}", key
        else:
            return None
        if "@" in path or path.startswith("/") or "$" in path:
            return None
        part = self.compose(os.path.join(group, path), is_part=True)
        if part is None:
            return None
        for step in reversed(package.split("/") if package else []):
            outer = Record(self.span, [Entry(Scalar(self.span, step, value=step), part)])
            outer.level = part.level
            part = outer
        return part


_FUNCTIONS: Final[Mapping[str, Callable[[Evaluator, Arguments, ast.Call], Any]]] = {
    "open": _open_file,
    "io.open": _open_file,
    "codecs.open": _open_file,
    **dict.fromkeys(("pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "os.path.join"), _make_path),
    **dict.fromkeys(
        ("os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.fspath"), _keep_path
    ),
    "os.path.dirname": _get_folder,
    **dict.fromkeys(
        (f"yaml.{name}" for name in ("safe_load", "full_load", "unsafe_load", "load")),
        _load_yaml,
    ),
    "json.load": _load_json,
    "json.loads": _load_json,
    "omegaconf.OmegaConf.load": _load_omegaconf,
    "omegaconf.OmegaConf.merge": _merge,
    "omegaconf.OmegaConf.from_cli": _read_command_line,
}
NAMES: Final = frozenset(("open",))
"""Built-in functions with a meaning here."""
