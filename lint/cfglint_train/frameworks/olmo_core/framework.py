"""OLMo-core: a Python script that builds its configuration, or the `config.json` saved beside a checkpoint.

Both are read as a tree (`script.py`): `train_module.rank_microbatch_size` is the same route in both, and in a
launch override (`--train_module.rank_microbatch_size=8192`). Batch sizes are in tokens in OLMo-core and in sequences in
the plan.

Sources: ai2-olmo-core 1.0.0 to 3.0.0 (`train/train_module/transformer/`, `train/config.py`, `train/trainer.py`,
`train/callbacks/`, `distributed/parallel/`, `nn/transformer/`, `optim/`, `data/data_loader.py`, `config.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import DocumentError, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import split_key
from cfglint_train.frameworks.framework import Framework, LaunchInterface, MetricsCost, Traits
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.olmo_core.infer import infer
from cfglint_train.frameworks.olmo_core.keys import OLMoCoreKeys
from cfglint_train.frameworks.olmo_core.lenses import LENSES
from cfglint_train.frameworks.olmo_core.recognise import prepare

NEWEST: Final = "3.0.0"


def parse_overrides(words: Iterable[str]) -> dict[Route, Any]:
    """Return the settings in the words after the script's own arguments.

    Words such as `--trainer.callbacks.checkpointer.save_interval=50` are read as in `Config.merge`: dashes in a name
    become underscores, a word without a value means true, and later words win. Raise ValueError for a word that does
    not name a setting or whose value is not YAML.
    """
    settings: dict[Route, Any] = {}
    for word in words:
        name, separator, text = word.partition("=")
        route = tuple(split_key(name.strip(" -").replace("-", "_")))
        if not route:
            raise ValueError(f"{word!r} is not a setting")
        value: Any = True
        if separator:
            value = _parse_value(text, word) if text.strip() else ""
        for previous in [previous for previous in settings if previous[: len(route)] == route]:
            del settings[previous]
        settings[route] = value
    return settings


def parse_trailing(_: Config, words: list[str]) -> dict[Route, Any]:
    """Return the overrides among the words after the script's path.

    The script's own words precede them: a command, a run name and a cluster, or options of its parser (`--save-folder
    /x`). Those options have no dot in their names. A setting at the top level (`--init_seed=1`) has no dot either and
    is left out.
    """
    return parse_overrides(word for word in words if word.startswith("--") and "." in word.partition("=")[0])


def _parse_value(text: str, word: str) -> Any:
    """Return a value with the type that `yaml.safe_load` gives it. Raise ValueError if it is not YAML."""
    from cfglint_train.documents.yaml.dialects import PYYAML
    from cfglint_train.documents.yaml.document import YamlDocument

    try:
        document = YamlDocument(word, text.encode(), PYYAML)
        return None if document.root is None else document.get_value()
    except DocumentError as error:
        raise ValueError(f"{word!r}: {error.message}") from None


FRAMEWORK: Final = Framework(
    name="olmo_core",
    default_release=NEWEST,
    lenses=LENSES,
    prepare=prepare,
    infer=infer,
    keys_type=OLMoCoreKeys,
    launch_interface=LaunchInterface(
        parse_settings=parse_overrides,
        parse_trailing=parse_trailing,
    ),
    traits=Traits(
        batch_divisor="micro batches",
        metrics_cost=MetricsCost(negligible_interval=5, suggested_interval=5),
    ),
)
