"""What is behind the configuration's path on axolotl's command line: options that are laid over the file.

Source: axolotl 0.18.0 and 0.21.0, `cli/utils/args.py` (one option per setting, `--on/--no-on` for a boolean,
`--section.name` one level deep) and `cli/config.py` (how a text becomes a value; the same in both releases).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_schemas import vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config

_YES: Final = ("true", "1", "yes")
_PLAIN: Final = {"true": True, "yes": True, "false": False, "no": False, "null": None, "none": None, "~": None}


def trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    """The settings that options make, by route. What is behind `--` is the launcher's."""
    found: dict[Route, Any] = {}
    own = words[: words.index("--")] if "--" in words else words
    for route, text in _options(config, own):
        if config.has(route[0]) or not config.get("strict"):
            found[route] = _coerced(text, config.get(*route)) if isinstance(text, str) else text
    return found


def _slips(config: Config, words: list[str], name: str) -> bool:
    """Whether an option that is no setting is meant to be one: what else axolotl does not know is its launcher's
    (`ignore_unknown_options` since 0.11), and without a launcher it is left out.
    """
    from cfglint_schemas.matches import closest  # few launches have such an option

    if "." in name or name in _OTHERS or name.startswith(("fsdp_", "deepspeed_", "main_process_")):
        return False
    if any(after == "python" for word, after in zip(words, words[1:]) if word == "--launcher"):
        return False
    known = vocabulary.load("axolotl")
    return any(_is_near(name, one.route) for one in closest(known, (name,), config.release)[:1])


def _is_near(name: str, route: Route) -> bool:
    """Whether a name differs from that of a setting by a letter or two."""
    from difflib import SequenceMatcher

    return len(route) == 1 and SequenceMatcher(None, name, str(route[0])).ratio() >= _SLIP


_SLIP: Final = 0.85
"""A margin: `learning_rte` is 0.96 of `learning_rate`, accelerate's `use_deepspeed` 0.82 of `deepspeed`."""
_OTHERS: Final = frozenset((
    "accelerate", "cloud", "debug", "debug_num_examples", "debug_text_only", "iterable", "launcher", "module",
    "prompter", "shard", "sweep",
))  # fmt: skip
"""Options of `axolotl train` that are no settings (0.21.0 `cli/main.py`, `cli/args.py`)."""


def _options(config: Config, words: list[str]) -> Iterator[tuple[Route, str | bool]]:
    """Every option that is a setting, with its text; True and False for switches."""
    for word, following in zip(words, [*words[1:], ""]):
        if not word.startswith("--"):
            continue
        name, sign, text = word[2:].partition("=")
        route = tuple(name.replace("-", "_").split("."))
        kinds = _kinds(config, route)
        if sign and kinds:
            yield route, text
        elif kinds[:1] == ["bool"]:
            # Up to 0.5 the options were read by `fire`, where a switch may be followed by its value.
            yield route, following if following.lower() in _PLAIN else True
        elif kinds and not following.startswith("--"):
            yield route, following
        elif route[0].startswith("no_"):
            route = (route[0].removeprefix("no_"), *route[1:])
            if _kinds(config, route)[:1] == ["bool"]:
                yield route, False
        elif _slips(config, words, ".".join(map(str, route))):
            yield route, text if sign else following


def _kinds(config: Config, route: Route) -> list[str]:
    """What the value of a setting may be, the first one deciding about its option; none where it does not exist."""
    fact = vocabulary.load("axolotl").fact(route, config.release)
    return [] if fact is None else [kind.name for kind in fact.kinds()]


def _coerced(text: str, present: Any) -> Any:
    """A text as a value of the kind that the file has there; where it has none, as YAML would have it."""
    if isinstance(present, bool):
        return text.lower() in _YES
    if present is not None and not isinstance(present, (int, float)):
        return text
    if present is None and text.lower() in _PLAIN:
        return _PLAIN[text.lower()]
    for kind in (int, float) if present is None else (type(present),):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
