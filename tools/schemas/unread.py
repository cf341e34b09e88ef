"""`python -m tools.schemas.unread FRAMEWORK`: list the keys that releases declare and no code of theirs reads.

A name is read if its value reaches a condition, a call outside the package's getters, or any other statement with an
effect. A name that only reaches other names (`self.x = config.x`, an accessor's return value, a keyword of a function)
is read if one of them is. Names of different owners are not distinguished: a listed key is unread, but not every unread
key is listed. Look at the source, then add a row to `patches/FRAMEWORK.json`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cfglint_schemas.readers.tree import SourceTree
from cfglint_train.foundation.versions import parse_release
from tools.schemas import form
from tools.schemas.__main__ import FRAMEWORKS, SCHEMAS
from tools.schemas.fetch import fetch_tree

_OTHER_PROGRAMS: Final = ("autotuning", "inference", "model_implementations")
"""Folders of programs other than training. A section of one of these names is looked up there, too."""
_LOGGING: Final = frozenset(("debug", "info", "log_dist", "print", "print_rank_0", "warn", "warning"))
_GETTERS: Final = frozenset((
    "bool", "float", "get", "get_dict_param", "get_list_param", "get_scalar_param", "getattr", "int",
    "parse_flag_from_env", "str", "str_to_bool",
))  # fmt: skip
_PREFIXES: Final = ("stage3_", "fp8_", "fsdp_")
"""Prefixes that the code drops before it looks up a key."""

_Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign


class NameFlow:
    """The names in a source tree: which are read, and which only reach other names."""

    def __init__(self, texts: Iterator[str]) -> None:
        """Read every file; a file that does not parse is skipped."""
        self.read: set[str] = set()
        self._targets: dict[str, set[str]] = defaultdict(set)
        self._parameters: set[str] = set()
        self._parents: dict[ast.AST, ast.AST] = {}
        for text in texts:
            try:
                self._follow_file(ast.parse(text))
            except SyntaxError:
                continue
        self._close()

    def _follow_file(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._parameters.update(word.arg for word in (*node.args.args, *node.args.kwonlyargs))
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._follow_use(node, node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._follow_use(node, node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                self._follow_use(node, node.value)

    def _follow_use(self, node: ast.AST, name: str) -> None:
        """Find the name that the value of a use reaches, or add the name to `read` if it has an effect."""
        child = node
        while (parent := self._parents.get(child)) is not None:
            if isinstance(parent, ast.Call) and child is not parent.func and _get_name(parent.func) not in _GETTERS:
                return None if _get_name(parent.func) in _LOGGING else self.read.add(name)
            if isinstance(parent, ast.keyword):
                return self._follow_keyword(parent, name)
            if isinstance(parent, _Assignment):
                return self._follow_assignment(parent, child, name)
            if isinstance(parent, ast.Return):
                return self._follow_return(parent, name)
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.arguments)):
                return None  # a default or an annotation
            if isinstance(parent, ast.stmt):
                return None if isinstance(child, ast.Constant) else self.read.add(name)
            child = parent
        return None

    def _follow_keyword(self, keyword: ast.keyword, name: str) -> None:
        call = self._parents[keyword]
        if isinstance(call, ast.Call) and _get_name(call.func) == "Field":
            return
        if keyword.arg in self._parameters:
            self._targets[name].add(str(keyword.arg))
        else:
            self.read.add(name)

    def _follow_assignment(self, statement: _Assignment, child: ast.AST, name: str) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if isinstance(statement, ast.AnnAssign) and isinstance(self._parents.get(statement), ast.ClassDef):
            return  # the declaration
        for target in targets:
            if isinstance(target, (ast.Name, ast.Attribute)):
                if child is not target:
                    self._targets[name].add(_get_name(target))
            else:
                self.read.add(name)

    def _follow_return(self, statement: ast.Return, name: str) -> None:
        owner: ast.AST | None = statement
        while owner is not None and not isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            owner = self._parents.get(owner)
        if owner is not None:
            self._targets[name].add(owner.name)

    def _close(self) -> None:
        """Add the names from which a read name can be reached."""
        sources: dict[str, set[str]] = defaultdict(set)
        for name, targets in self._targets.items():
            for target in targets:
                sources[target].add(name)
        unvisited = list(self.read)
        while unvisited:
            new_names = sources.get(unvisited.pop(), set()) - self.read
            self.read |= new_names
            unvisited.extend(new_names)


def _get_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def list_unread_keys(schema: dict[str, Any], tree: SourceTree) -> Iterator[str]:
    """Yield the keys of a release, as `definition/key`, that its code never reads and no patch mentions."""
    everywhere = NameFlow(iter(tree.files.values()))
    in_training = NameFlow(
        text for path, text in tree.files.items() if not set(_OTHER_PROGRAMS).intersection(path.split("/"))
    )
    for definition, content in schema["$defs"].items():
        flow = everywhere if definition.split(".")[0] in _OTHER_PROGRAMS else in_training
        for key, fact in content.get("properties", {}).items():
            span = _find_span(fact, tree.release)
            if span is None or "x-removed" in span.get("schema", fact) or "x-status" in fact:
                continue
            names = {key, *span.get("aliases", ()), *(key.removeprefix(prefix) for prefix in _PREFIXES)}
            if names.isdisjoint(flow.read):
                yield f"{definition}/{key}"


def _find_span(fact: dict[str, Any], release: str) -> dict[str, Any] | None:
    """Return the span of releases that contains a release, or None if it lacks the key."""
    key = parse_release(release)
    for span in fact.get("x-releases", ()):
        if parse_release(span["since"]) <= key and ("last" not in span or key <= parse_release(span["last"])):
            return dict(span)
    return None


def main(words: list[str] | None = None) -> int:
    """Print the unread keys, each with the releases in which it is unread; return 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.schemas.unread", description=__doc__)
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    parser.add_argument("--releases", help="releases to read, separated by commas (default: all in the vocabulary)")
    parser.add_argument("--cache", type=Path, required=True, help="folder with archives or unpacked releases")
    options = parser.parse_args(words)
    package = FRAMEWORKS[options.framework][0]
    schema = form.load_schema(SCHEMAS / f"{options.framework}.json")
    known_releases = schema["x-packages"][package.name]
    unread: dict[str, list[str]] = defaultdict(list)
    for release in options.releases.split(",") if options.releases else known_releases:
        for key in list_unread_keys(
            schema, fetch_tree(package.name, release, options.cache, package.module, package.wheels)
        ):
            unread[key].append(release)
    for key, releases in sorted(unread.items()):
        print(f"{key}: {releases[0]} to {releases[-1]} ({len(releases)} releases)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
