"""DeepSpeed: a JSON file or a section of another config, read by hjson or by the host's `json`.

Sources: DeepSpeed 0.19.8 (`runtime/config.py`, `runtime/config_utils.py`, `runtime/precision_config.py`,
`runtime/zero/config.py`, `runtime/zero/offload_config.py`, `runtime/engine.py`). Defaults by release come from 18
source distributions, 0.12.6 to 0.19.8.

The host is the framework that loads a DeepSpeed file as a companion. It fills in `"auto"` values (`Auto`); DeepSpeed
itself drops them and uses its defaults.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.deepspeed.infer import infer
from cfglint_train.frameworks.deepspeed.keys import DeepSpeedKeys
from cfglint_train.frameworks.deepspeed.lenses import LENSES, NEWEST, SHARED_FIELDS
from cfglint_train.frameworks.framework import Framework, Traits
from cfglint_train.frameworks.loaders import DEEPSPEED

FRAMEWORK: Final = Framework(
    name="deepspeed",
    default_release=NEWEST,
    lenses=LENSES,
    loader=DEEPSPEED,
    infer=infer,
    shared_fields=SHARED_FIELDS,
    keys_type=DeepSpeedKeys,
    traits=Traits(
        refuses_duplicates_since="",
        batch_identity=("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    ),
)
