"""Options of axolotl's command line, which axolotl merges into the config.

Source: axolotl 0.18.0 and 0.21.0, `cli/utils/args.py` (one option per setting, `--on/--no-on` for a boolean,
`--section.name` one level deep) and `cli/config.py` (conversion of text to values, the same in both releases).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas import vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config

_TRUE_WORDS: Final = ("true", "1", "yes")
_WORD_VALUES: Final = {"true": True, "yes": True, "false": False, "no": False, "null": None, "none": None, "~": None}


def parse_trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    """Return the settings that the trailing words state, by route. Words after `--` belong to the launcher."""
    settings: dict[Route, Any] = {}
    axolotl_words = words[: words.index("--")] if "--" in words else words
    for route, text in _parse_options(config, axolotl_words):
        if config.has(route[0]) or not config.get("strict"):
            settings[route] = _convert_value(text, config.get(*route)) if isinstance(text, str) else text
    return settings


def _is_misspelt_option(config: Config, words: list[str], name: str) -> bool:
    """Return whether an unknown option is probably a misspelled setting.

    Other unknown options may be the launcher's: axolotl passes them on from 0.11 on (`ignore_unknown_options`), and
    ignores them if it starts without a launcher.
    """
    from cfglint_schemas.matches import find_closest  # few launches have unknown options

    if "." in name or name in _COMMAND_OPTIONS or name.startswith(("fsdp_", "deepspeed_", "main_process_")):
        return False
    if any(following == "python" for word, following in zip(words, words[1:]) if word == "--launcher"):
        return False
    axolotl_vocabulary = vocabulary.load("axolotl")
    return any(
        _is_near(name, candidate.route) for candidate in find_closest(axolotl_vocabulary, (name,), config.release)[:1]
    )


def _is_near(name: str, route: Route) -> bool:
    """Return whether an option is similar to a top-level setting, that is, differs by a letter or two."""
    from difflib import SequenceMatcher

    return len(route) == 1 and SequenceMatcher(None, name, str(route[0])).ratio() >= _MIN_SIMILARITY


_MIN_SIMILARITY: Final = 0.85
"""Minimum similarity of a misspelling.

`learning_rte` scores 0.96 against `learning_rate`; accelerate's `use_deepspeed` scores 0.82 against `deepspeed`.
"""
_COMMAND_OPTIONS: Final = frozenset((
    "accelerate", "cloud", "debug", "debug_num_examples", "debug_text_only", "iterable", "launcher", "module",
    "prompter", "shard", "sweep",
))  # fmt: skip
"""Options of `axolotl train` that are not settings (0.21.0 `cli/main.py`, `cli/args.py`)."""


def _parse_options(config: Config, words: list[str]) -> Iterator[tuple[Route, str | bool]]:
    """Yield the route of every option that is a setting or a typo of it, with its text, or a boolean for switches."""
    for word, following in zip(words, [*words[1:], ""]):
        if not word.startswith("--"):
            continue
        name, separator, text = word[2:].partition("=")
        route = tuple(name.replace("-", "_").split("."))
        kinds = _list_kinds(config, route)
        if separator and kinds:
            yield route, text
        elif kinds[:1] == ["bool"]:
            # Up to 0.5, `fire` read the options, and a switch could be followed by its value.
            yield route, following if following.lower() in _WORD_VALUES else True
        elif kinds and not following.startswith("--"):
            yield route, following
        elif route[0].startswith("no_"):
            route = (route[0].removeprefix("no_"), *route[1:])
            if _list_kinds(config, route)[:1] == ["bool"]:
                yield route, False
        elif _is_misspelt_option(config, words, ".".join(map(str, route))):
            yield route, text if separator else following


def _list_kinds(config: Config, route: Route) -> list[str]:
    """Return the names of a setting's value types, or an empty list if the setting does not exist.

    The first type determines the form of the option.
    """
    fact = vocabulary.load("axolotl").find_fact(route, config.release)
    return [] if fact is None else [kind.name for kind in fact.list_kinds()]


def _convert_value(text: str, current: Any) -> Any:
    """Convert a string to the type of the file's current value, or as YAML does if the file has no value."""
    if isinstance(current, bool):
        return text.lower() in _TRUE_WORDS
    if current is not None and not isinstance(current, (int, float)):
        return text
    if current is None and text.lower() in _WORD_VALUES:
        return _WORD_VALUES[text.lower()]
    for kind in (int, float) if current is None else (type(current),):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
