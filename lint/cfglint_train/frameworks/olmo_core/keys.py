"""The keys of an OLMo-core script are Python's: an argument that no class has stops the script at its first line.

What the launch lays over them (`--trainer.save_interval=50`) is found out when the job starts.
"""

from __future__ import annotations

from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.document import Node, Route
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.keys import Keys, LauncherOption
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_OF_LIBRARY: Final = "olmo_core."
_MERGED_BY: Final = "olmo_core.internal.experiment"
"""Its `main` merges the overrides itself."""
_STOPS_SINCE: Final = "2.5.0"
"""`Config.merge` sets keys of plain mappings (config.py, `_set_nested`) and fails below null; up to 2.4.0, OmegaConf
makes the section."""


_OWN_WORDS: Final = 3
"""Words of the library's own `main` before the overrides; scripts have as many or fewer."""


class OLMoCoreKeys(Keys):
    """ai2-olmo-core 1.0.0 to 3.0.0."""

    checked = False

    def settles(self, route: Route) -> bool:
        """A script chooses a class for most of its settings; the trainer's own are the same in every one."""
        return route[0] == "trainer" and len(route) == 2

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """`Config.merge` stops at a setting that has no name, wherever words are settings: behind those of the program
        itself (subcommand, name of the run, cluster). Run with 2.0.0 and 3.0.0; with `strict=False` it goes on.
        """
        before = given.words[:index]
        is_setting = index >= _OWN_WORDS or any(word.text.startswith("--") for word in before)
        return is_setting and config.once(_merges) and config.once(_is_strict)

    def launched(self, config: Config, route: Route) -> LauncherOption | None:
        """The innermost class of the library above the setting, with the way from there."""
        if not config.once(_merges):
            return None
        node: Node | None = config.node()
        found: Route = ()
        for depth, step in enumerate(route):
            if not isinstance(node, MappingNode):
                return None  # below a value that no call in sight made, there may be anything
            name = config.document.value((*config.root, *route[:depth], "_CLASS_"))
            if isinstance(name, str):
                found = (name.rpartition(".")[2], *route[depth:]) if name.startswith(_OF_LIBRARY) else ()
            if depth + 1 == len(route):
                break
            entry, section = node.index.get(str(step)), route[: depth + 1]
            if entry is None:
                return self._below_default(config, node, found, route, section)
            if config.document.plain(entry.value) is None and not _hinges(entry.value):
                return _below_null(config, found, section) if found else None
            node = entry.value
        return LauncherOption("script", found) if found else None

    def _below_default(
        self, config: Config, node: MappingNode, found: Route, route: Route, section: Route
    ) -> LauncherOption | None:
        """A setting below a section that the script does not mention, where that is null by default or none at all."""
        if not found or not isinstance(node, Record) or node.open or node.sealed:
            return None
        about = self.context(config)._replace(entry="script")
        at = found[: len(found) - len(route) + len(section)]
        fact = self.vocabulary_of(config).fact(at, self.release(config), about)
        if fact is None:
            return LauncherOption("script", found)
        return _below_null(config, found, section) if fact.schema().get("default", section) is None else None


def _below_null(config: Config, found: Route, section: Route) -> LauncherOption:
    """A setting below a section that is null, unless the launch gives the section, too."""
    given = any(route == section[: len(route)] for route, _ in config.launched)
    return (
        LauncherOption("script", found)
        if given
        else LauncherOption("script", found, unset=section, stops_since=_STOPS_SINCE)
    )


def _hinges(node: Node) -> bool:
    return any(step.kind == "depends" for step in getattr(node, "how", ()))


def _is_strict(config: Config) -> bool:
    """Whether all of the command line is settings, and one that no class has stops the script."""
    from cfglint_train.documents.python.document import PythonDocument

    document = config.document
    if not isinstance(document, PythonDocument) or "argparse" in document.imports():
        return False
    return not any(word.arg in ("strict", None) for call in document.calls("merge") for word in call.keywords)


def _merges(config: Config) -> bool:
    """Whether the script hands its command line to `Config.merge` as a whole."""
    from cfglint_train.documents.python.document import PythonDocument

    document = config.document
    if not isinstance(document, PythonDocument):
        return False
    calls = document.calls("merge")
    if any(word.arg == "prefix" for call in calls for word in call.keywords):
        return False
    return bool(calls) or any(name.startswith(_MERGED_BY) for name in document.imports())
