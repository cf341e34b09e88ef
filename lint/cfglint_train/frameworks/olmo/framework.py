"""OLMo (v1): one YAML file, read by OmegaConf into typed dataclasses, with overrides after it on the command line.

The file alone is rarely the configuration of the run: interpolations (`${device_train_microbatch_size}`) resolve after
the overrides, and launch scripts override sharding, workers and intervals. OLMo itself rejects unknown keys.

Sources: ai2-olmo 0.2.5 to 0.6.0 (`olmo/config.py`, `olmo/train.py`, `olmo/model.py`, `olmo/optim.py`,
`olmo/checkpoint.py`, `olmo/util.py`) and `scripts/train.py` at the tags of these releases.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import parse_dotlist
from cfglint_train.frameworks.framework import Framework, LaunchInterface, MetricsCost, Traits
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.infer import infer
from cfglint_train.frameworks.olmo.keys import OLMoKeys
from cfglint_train.frameworks.olmo.lenses import LENSES
from cfglint_train.frameworks.olmo.recognise import prepare

NEWEST: Final = "0.6.0"


def parse_overrides(words: Iterable[str]) -> dict[Route, Any]:
    """Return the settings in the words after the configuration's path (`--a.b=c`, `--save-overwrite`).

    Words are read as in `scripts/train.py`: dashes in a name become underscores, a word without a value means true, and
    later words win. Raise ValueError for a word that does not name a setting or whose value is not YAML.
    """
    normalised = []
    for word in words:
        name, separator, value = word.partition("=")
        normalised.append(f"{name.strip('-').replace('-', '_')}={value if separator else 'True'}")
    return parse_dotlist(normalised)


FRAMEWORK: Final = Framework(
    name="olmo",
    default_release=NEWEST,
    lenses=LENSES,
    loader=OMEGACONF,
    prepare=prepare,
    infer=infer,
    keys_type=OLMoKeys,
    launch_interface=LaunchInterface(
        parse_settings=parse_overrides,
        parse_trailing=lambda _, words: parse_overrides(words),
    ),
    traits=Traits(
        refuses_duplicates_since="",
        batch_divisor="ranks",
        waits_for_cancel=True,
        # optim.py get_metrics: four statistics (min, max, average, norm) of the parameter, of its gradient and of each
        # state that get_state_for_param returns (AdamW: two moments, LionW: none).
        metrics_cost=MetricsCost(
            negligible_interval=2, suggested_interval=10, synchronizations={"adamw": 16, "lion": 8}
        ),
    ),
)
