"""accelerate: the YAML file of `accelerate launch --config_file`, read by PyYAML and passed on in the environment.

Sources: accelerate 1.3.0 to 1.15.0 (`commands/config/config_args.py`, `commands/launch.py`, `utils/launch.py`,
`utils/dataclasses.py`, `utils/constants.py`). Every value is converted with `str()` for an environment variable, so
`true`, "true" and 1 mean the same.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.accelerate.command import read_launcher_options
from cfglint_train.frameworks.accelerate.infer import SHARED_FIELDS, infer
from cfglint_train.frameworks.accelerate.keys import AccelerateKeys
from cfglint_train.frameworks.accelerate.lenses import LENSES
from cfglint_train.frameworks.accelerate.recognise import list_references
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.loaders import ACCELERATE

NEWEST: Final = "1.15.0"

FRAMEWORK: Final = Framework(
    name="accelerate",
    default_release=NEWEST,
    lenses=LENSES,
    loader=ACCELERATE,
    references=list_references,
    infer=infer,
    shared_fields=SHARED_FIELDS,
    keys_type=AccelerateKeys,
    launch_interface=LaunchInterface(
        read_launcher_options=read_launcher_options,
    ),
    traits=Traits(
        strict_json=True,
    ),
)
