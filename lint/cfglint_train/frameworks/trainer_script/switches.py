"""Switches of a script: options without a value that change a setting, such as `--use_deepspeed`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import Route
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.trainer_script.runs import parse_trailing
from cfglint_train.plan.origin import Origin, Place

_MAX_SWITCHES: Final = 8
"""Number of switches that are tried; each one reads the script again."""


def find_switched_settings(config: Config, route: Route) -> Mapping[Route, Override] | None:
    """Return the settings under the first switch that gives `route` a text, all assumed, or None."""
    document = config.document
    if not isinstance(document, PythonDocument):
        return None
    for option, call in list(_list_switches(document))[:_MAX_SWITCHES]:
        values = parse_trailing(config, [option])
        if isinstance(values.get(route), str):
            place = Place(document, document.find_span(call))
            line = document.locate(place.span.start).line
            return {
                changed: Override(
                    value,
                    Origin(
                        "explicit",
                        place,
                        key=str(changed[0]),
                        assumption=f"the script is started with `{option}` (line {line})",
                    ),
                )
                for changed, value in values.items()
            }
    return None


def _list_switches(document: PythonDocument) -> Iterator[tuple[str, ast.Call]]:
    """Yield the options that argparse declares with `store_true`, each with its declaration."""
    for call in document.find_calls("add_argument"):
        actions = [keyword.value for keyword in call.keywords if keyword.arg == "action"]
        names = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        option = next((name for name in names if name.startswith("--")), None)
        if option and any(isinstance(action, ast.Constant) and action.value == "store_true" for action in actions):
            yield option, call
