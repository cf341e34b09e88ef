"""Hydra configurations in a source tree: compose a YAML file with its `defaults:` list.

The order and the packages follow Hydra 1.3 (`hydra/_internal/defaults_list.py`). Interpolations of values stay text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from posixpath import dirname, join, normpath
from typing import Any, Final

import yaml

from cfglint_schemas.readers.source import UndecidedError
from cfglint_schemas.readers.tree import SourceTree
from cfglint_train.foundation.expressions import compile_on_use

Tree = dict[str, Any]

_SELF: Final = "_self_"
_PACKAGE: Final = compile_on_use(r"(?m)^#\s*@package\s+(\S+)")
_CHOICE: Final = compile_on_use(r"\$\{([\w/@.]+)\}")
_MAX_DEPTH: Final = 20


@cache
def _build_loader() -> type[yaml.SafeLoader]:
    """Return OmegaConf's loader, as far as it differs: `1e-6` is a number.

    The source is omegaconf 2.3.0 `_utils.py`: get_yaml_loader.
    """

    class Loader(yaml.SafeLoader):
        """A loader with resolvers of its own."""

    expression = re.compile(r"^[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", expression, list("-+0123456789"))
    return Loader


class ConfigFolder:
    """The Hydra configurations in folders of a source tree; the first folder that has a file wins."""

    __slots__ = ("_folders", "_parsed", "_tree", "groups")

    def __init__(self, tree: SourceTree, *folders: str) -> None:
        """Store the tree and the folders, which are parsed when needed."""
        self._tree = tree
        self._folders = folders
        self._parsed: dict[str, Any] = {}
        self.groups: dict[tuple[str, ...], str] = {}
        """Group whose file each section of the last composed tree comes from, by the section's route."""

    def list_options(self, group: str) -> list[str]:
        """Return the names of the configurations in a group, sorted."""
        paths = [path for folder in self._folders for path in self._tree.list_files(join(folder, group))]
        return sorted({path.rpartition("/")[2][:-5] for path in paths if path.endswith(".yaml")})

    def has(self, name: str) -> bool:
        """Return whether a configuration exists."""
        return self._find_path(name) is not None

    def compose(self, name: str, choices: Mapping[str, str] = {}) -> Tree:
        """Return the composed tree of a configuration; `choices` are options of groups, as words select them.

        Raises UndecidedError if a configuration is missing or not a mapping.
        """
        composed: Tree = {}
        self.groups = {}
        selected = {**self._collect_overrides(name), **choices}
        self._add(composed, name, (), dict(selected), 0)
        return composed

    def _collect_overrides(self, name: str, depth: int = 0) -> dict[str, str]:
        """Return the choices in the `override` entries of a configuration and of those that it extends."""
        if depth > _MAX_DEPTH:
            raise UndecidedError(f"{name} includes itself")
        overrides: dict[str, str] = {}
        for item in self._load(name)[1]:
            if isinstance(item, str) and item != _SELF:
                extended = normpath(join(dirname(name), item.partition("@")[0]))
                overrides = {**self._collect_overrides(extended, depth + 1), **overrides}
            elif isinstance(item, dict):
                for group, option in item.items():
                    if str(group).startswith("override "):
                        overrides[str(group)[9:].strip().lstrip("/")] = str(option)
        return overrides

    def _add(self, composed: Tree, name: str, package: tuple[str, ...], choices: dict[str, str], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise UndecidedError(f"{name} includes itself")
        content, defaults, header = self._load(name)
        own_package = package if header is None else () if header == "_global_" else tuple(header.split("."))
        for item in defaults if _SELF in defaults else [*defaults, _SELF]:
            if item == _SELF:
                _merge(composed, content, own_package)
            elif isinstance(item, str):
                config, _, place = item.partition("@")
                inner = (*package, *place.split(".")) if place else package
                self._add(composed, normpath(join(dirname(name), config)), inner, choices, depth + 1)
            elif isinstance(item, dict):
                for group, option in item.items():
                    self._add_group(composed, name, str(group), option, package, choices, depth)

    def _add_group(
        self,
        composed: Tree,
        name: str,
        group: str,
        option: object,
        package: tuple[str, ...],
        choices: dict[str, str],
        depth: int,
    ) -> None:
        is_optional = group.startswith("optional ")
        group, _, place = group.removeprefix("optional ").strip().partition("@")
        if group.startswith("override "):
            return
        folder = group[1:] if group.startswith("/") else normpath(join(dirname(name), group))
        inner = (*package, *(place.split(".") if place else [part for part in folder.split("/") if part]))
        if isinstance(option, list):
            for name in option:
                self._add(composed, join(folder, str(name)), inner, choices, depth + 1)
            return
        self.groups[inner] = folder
        spelling = f"{folder}@{'.'.join((*package, place))}" if place else folder
        chosen = choices.setdefault(spelling, choices.get(folder, "" if option is None else str(option)))
        chosen = _CHOICE.sub(lambda match: choices.get(match[1], match[0]), chosen)
        if not chosen or chosen == "null" or (is_optional and not self.has(join(folder, chosen))):
            return
        self._add(composed, join(folder, chosen), inner, choices, depth + 1)

    def _find_path(self, name: str) -> str | None:
        name = name if name.endswith(".yaml") else f"{name}.yaml"
        paths = (f"{folder}/{name}" for folder in self._folders)
        return next((path for path in paths if self._tree.has_file(path)), None)

    def _load(self, name: str) -> tuple[Tree, list[Any], str | None]:
        """Return the content of a configuration without its `defaults:`, these defaults, and its package."""
        path = self._find_path(name)
        if path is None:
            raise UndecidedError(f"no configuration {name} in {', '.join(self._folders)}")
        if path not in self._parsed:
            text = self._tree.files[path]
            try:
                content = yaml.load(text, _build_loader()) or {}
            except yaml.YAMLError as problem:
                raise UndecidedError(f"{path}: {problem}") from None
            if not isinstance(content, dict):
                raise UndecidedError(f"{path} is not a mapping")
            defaults = content.pop("defaults", None) or []
            content.pop("hydra", None)
            match = _PACKAGE.search(text)
            self._parsed[path] = (content, defaults if isinstance(defaults, list) else [], match and match[1])
        parsed: tuple[Tree, list[Any], str | None] = self._parsed[path]
        return parsed


def _merge(target: Tree, content: Tree, package: tuple[str, ...]) -> None:
    """Merge a mapping into the tree at a package, in place; mappings are merged, other values replaced."""
    for part in package:
        inner = target.get(part)
        if not isinstance(inner, dict):
            inner = target[part] = {}
        target = inner
    for key, value in content.items():
        if isinstance(value, dict):
            _merge(target, value, (str(key),))
        else:
            target[str(key)] = value
