"""Keys of EasyR1's file."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.flag_parser import RefusedWord
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.olmo.keys import OLMoKeys
from cfglint_train.frameworks.registry import find_framework_of_program
from cfglint_train.frameworks.verl.settings import find_vocabulary_default, resolve_value
from cfglint_train.plan.origin import Place

_ENDINGS: Final = (".yaml", ".yml")


class EasyR1Keys(OLMoKeys):
    """Key handling of EasyR1 0.3.0 to 0.3.3.dev0.

    OmegaConf merges the file and the launch's words into EasyR1's dataclasses (`verl/trainer/main.py`, main).
    """

    def resolve_setting(self, config: Config, name: str) -> Any:
        """Return the value that applies: given, or by default, with interpolations resolved."""
        if not config.launches and config.get(*name.split(".")) is None:
            return Unknown("the command that starts the file")
        return resolve_value(config, name)

    def find_default(self, config: Config, name: str, release: str) -> Any:
        """Return the default of EasyR1's dataclass at a release, or MISSING."""
        return find_vocabulary_default(config, name, release)

    def list_refused_words(self, config: Config) -> Iterator[RefusedWord]:
        """Yield the words that pass a file otherwise than as `config=FILE`, or that name no setting."""
        if not _is_read_by_omegaconf(config):
            return
        for script, number in config.launches:
            invocation = script.invocations[number] if isinstance(script, ShellDocument) else None
            if invocation is None or find_framework_of_program(invocation.program) is None:
                continue
            for word in invocation.words:
                name, sign, _ = word.text.partition("=")
                if not word.is_known or word.text.isspace():
                    continue
                if not name:
                    help = "write a setting as one word: `a.b=c`"
                    yield RefusedWord(Place(script, word.span), f"`{word.text}` names no setting", help, lambda _: True)
                elif name == "--config" or (not sign and name.endswith(_ENDINGS)):
                    message = f"EasyR1 reads its file from `config=FILE` alone, not from `{word.text}`"
                    yield RefusedWord(Place(script, word.span), message, "write `config=FILE`", lambda _: True)
                    break


def _is_read_by_omegaconf(config: Config) -> bool:
    """Return whether OmegaConf alone reads the command, which a copy of EasyR1 may have changed."""
    copy = config.evidence.vocabulary
    if copy is None:
        return True
    has_call = [
        copy.code.find_passed_values("main", call, "") is not None
        for call in ("from_cli", "parse_args", "parse_known_args")
    ]
    return has_call == [True, False, False]
