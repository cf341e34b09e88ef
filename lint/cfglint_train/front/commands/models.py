"""`cfglint models [NAME]`: the models of the catalogue, or one of them."""

from __future__ import annotations

from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.output import print_lines
from cfglint_train.front.commands.parser import Parser


def models(argv: list[str]) -> int:
    """Print the models of the catalogue, or one of them, and return the exit code."""
    parser = Parser(prog="cfglint models")
    parser.add_argument("name", nargs="?", help="a Hub id, an alias or the folder of a model")
    parser.add_argument(
        "--online", action="store_true", help="download the config.json of an unknown model from the Hub"
    )
    options = parser.parse_args(argv)
    model_name = options.name
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.models import find, lookup
    from cfglint_train.models.local import UnreadableModelError
    from cfglint_train.models.user_config import load_user_config

    if model_name is None:
        print_lines(sorted(lookup.list_ids(), key=str.lower))
        return CLEAN
    load_user_config(None, options.online)
    try:
        architecture = find.find_architecture(model_name, online=options.online)
    except UnreadableModelError as error:
        raise UsageError(str(error)) from None
    if architecture is None:
        suggestions = " or ".join(lookup.suggest_ids(model_name))
        raise UsageError(
            f"{model_name} is not in the catalogue{f'; did you mean {suggestions}?' if suggestions else ''}"
        )
    for name, value in architecture._asdict().items():
        if value not in (None, (), 0, False) and name != "linears":
            is_number = isinstance(value, int) and value is not True
            print_lines([f"{name:<24}{value:,}" if is_number else f"{name:<24}{value}"])
    return CLEAN
