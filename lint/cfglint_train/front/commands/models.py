"""`cfglint models [NAME]`: the models of the catalogue, or one of them."""

from __future__ import annotations

from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.output import put
from cfglint_train.front.commands.parser import Parser


def models(argv: list[str]) -> int:
    """`cfglint models [NAME]`: the models of the catalogue, or one of them."""
    parser = Parser(prog="cfglint models")
    parser.add_argument("name", nargs="?", help="a hub id, an alias, or the folder of a model")
    parser.add_argument("--online", action="store_true", help="ask the Hub for the config.json of an unknown model")
    options = parser.parse_args(argv)
    wanted = options.name
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.models import find, lookup
    from cfglint_train.models.local import UnreadableModelError
    from cfglint_train.models.user_config import asked

    if wanted is None:
        put(sorted(lookup.ids(), key=str.lower))
        return CLEAN
    asked(None, options.online)
    try:
        known = find.architecture_of(wanted, online=options.online)
    except UnreadableModelError as error:
        raise UsageError(str(error)) from None
    if known is None:
        near = " or ".join(lookup.near(wanted))
        raise UsageError(f"{wanted} is not in the catalogue{f'; did you mean {near}?' if near else ''}")
    for name, value in known._asdict().items():
        if value not in (None, (), 0, False) and name != "linears":
            number = isinstance(value, int) and value is not True
            put([f"{name:<24}{value:,}" if number else f"{name:<24}{value}"])
    return CLEAN
