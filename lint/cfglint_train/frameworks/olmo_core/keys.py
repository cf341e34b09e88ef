"""Keys of OLMo-core scripts, which are Python arguments: an unknown argument stops the script before it trains.

Unknown keys in launch overrides (`--trainer.save_interval=50`) only fail when the job starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.document import Node, Route, Span
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.keys import Keys, LauncherOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_LIBRARY_PREFIX: Final = "olmo_core."
_EXPERIMENT_MODULE: Final = "olmo_core.internal.experiment"
"""Module whose `main` merges the overrides itself."""
_NULL_SECTION_FAILS_SINCE: Final = "2.5.0"
"""First release that fails on a setting below a null section.

Since this release, `Config.merge` sets keys of plain mappings (config.py, `_set_nested`).
Up to 2.4.0, OmegaConf creates the section.
"""

_NAMESAKES: Final = frozenset(
    ("ExperimentConfig", "ExpertParallelConfig", "InstanceFilterConfig", "NemotronBlockConfig")
)
"""Names that two classes of the library share, and a class that is built by its own functions (3.0.0)."""
_INIT_ONLY: Final = frozenset((("TransformerBlockConfig", "attention"),))
"""Arguments of a constructor that are no settings afterwards (`InitVar`, 2.6.0 and 3.0.0)."""

_SCRIPT_WORDS: Final = 3
"""Number of words that the library's `main` expects before the overrides; scripts expect as many or fewer."""


class OLMoCoreKeys(Keys):
    """Key handling of ai2-olmo-core 1.0.0 to 3.0.0."""

    is_checked = False

    def is_fixed_place(self, route: Route) -> bool:
        """Return whether the key belongs to the trainer, whose settings are the same in every script.

        Most other settings depend on the class that a script chooses.
        """
        return route[0] == "trainer" and len(route) == 2

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether `Config.merge` stops at a blank word, which is a setting without a name.

        Every word after the program's own words (subcommand, run name, cluster) is a setting. Tested with 2.0.0 and
        3.0.0. With `strict=False`, `Config.merge` continues.
        """
        previous_words = invocation.words[:index]
        is_setting = index >= _SCRIPT_WORDS or any(word.text.startswith("--") for word in previous_words)
        return is_setting and config.compute_once(_has_full_merge) and config.compute_once(_is_strict)

    def list_call_settings(self, config: Config) -> Iterator[tuple[LauncherOption, Place]]:
        """Yield the keyword arguments of calls of the library's classes, each with its place.

        The classes are dataclasses without a constructor of their own, so an unknown argument is a TypeError.
        """
        import ast  # slow imports, which saved configurations do not need

        from cfglint_train.documents.python.document import PythonDocument
        from cfglint_train.documents.python.syntax import map_imports, resolve_dotted_name

        document = config.document
        if not isinstance(document, PythonDocument):
            return
        names = map_imports([*document.list_nodes(ast.ImportFrom), *document.list_nodes(ast.Import)])
        for call in document.list_nodes(ast.Call):
            full_name = resolve_dotted_name(call.func, names)
            class_name = full_name.rpartition(".")[2]
            if not full_name.startswith(_LIBRARY_PREFIX) or class_name in _NAMESAKES:
                continue
            for keyword in call.keywords:
                if keyword.arg is not None and (class_name, keyword.arg) not in _INIT_ONLY:
                    start = document.find_span(keyword).start
                    span = Span(start, start + len(keyword.arg.encode()))
                    yield LauncherOption("script", (class_name, keyword.arg)), Place(document, span)

    def find_launcher_option(self, config: Config, route: Route) -> LauncherOption | None:
        """Return the option for a setting: the innermost library class above it, and the route below that class."""
        if not config.compute_once(_has_full_merge):
            return None
        node: Node | None = config.get_node()
        class_route: Route = ()
        for depth, step in enumerate(route):
            if not isinstance(node, MappingNode):
                return None  # The keys of a value that no visible call built are unknown.
            name = config.document.get_value((*config.root, *route[:depth], "_CLASS_"))
            if isinstance(name, str):
                class_route = (name.rpartition(".")[2], *route[depth:]) if name.startswith(_LIBRARY_PREFIX) else ()
            if depth + 1 == len(route):
                break
            entry, section = node.index.get(str(step)), route[: depth + 1]
            if entry is None:
                return self._build_option_below_default(config, node, class_route, route, section)
            if config.document.build_value(entry.value) is None and not _is_conditional(entry.value):
                return _build_option_below_null(config, class_route, section) if class_route else None
            node = entry.value
        return LauncherOption("script", class_route) if class_route else None

    def _build_option_below_default(
        self, config: Config, node: MappingNode, class_route: Route, route: Route, section: Route
    ) -> LauncherOption | None:
        """Return the option for a setting below a section that the script omits.

        If the section is null by default, the option is the same as below a section that the script sets to null.
        Return None if the section has another default, or if the script may set it elsewhere.
        """
        if not class_route or not isinstance(node, Record) or node.open or node.sealed:
            return None
        context = self.build_context(config)._replace(entry="script")
        section_in_class = class_route[: len(class_route) - len(route) + len(section)]
        fact = self.get_vocabulary(config).find_fact(section_in_class, self.get_release(config), context)
        if fact is None:
            return LauncherOption("script", class_route)
        return (
            _build_option_below_null(config, class_route, section)
            if fact.get_schema().get("default", section) is None
            else None
        )


def _build_option_below_null(config: Config, class_route: Route, section: Route) -> LauncherOption:
    """Return the option for a setting below a section that is null.

    The option marks the section as unset, unless the launch also sets the section.
    """
    has_section = any(route == section[: len(route)] for route, _ in config.launch_overrides)
    return (
        LauncherOption("script", class_route)
        if has_section
        else LauncherOption("script", class_route, unset_section=section, fatal_since=_NULL_SECTION_FAILS_SINCE)
    )


def _is_conditional(node: Node) -> bool:
    return any(step.kind == "depends" for step in getattr(node, "how", ()))


def _is_strict(config: Config) -> bool:
    """Return whether the command line consists of settings only, so that an unknown setting stops the script."""
    from cfglint_train.documents.python.document import PythonDocument

    document = config.document
    if not isinstance(document, PythonDocument) or "argparse" in document.list_imports():
        return False
    return not any(word.arg in ("strict", None) for call in document.find_calls("merge") for word in call.keywords)


def _has_full_merge(config: Config) -> bool:
    """Return whether the script passes its whole command line to `Config.merge`."""
    from cfglint_train.documents.python.document import PythonDocument

    document = config.document
    if not isinstance(document, PythonDocument):
        return False
    calls = document.find_calls("merge")
    if any(word.arg == "prefix" for call in calls for word in call.keywords):
        return False
    return bool(calls) or any(name.startswith(_EXPERIMENT_MODULE) for name in document.list_imports())
