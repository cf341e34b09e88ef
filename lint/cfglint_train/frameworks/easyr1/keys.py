"""Keys of EasyR1's file."""

from __future__ import annotations

from cfglint_train.documents.document import Unknown
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.olmo.keys import OLMoKeys
from cfglint_train.frameworks.verl.settings import find_vocabulary_default, resolve_value


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
