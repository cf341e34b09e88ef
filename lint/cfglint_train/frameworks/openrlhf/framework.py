"""OpenRLHF: flags of a command line in a shell script, from which it builds its own DeepSpeed settings.

A configuration is an invocation of an entry point (`openrlhf.cli.train_sft`, ...). A lens finds a flag by its dotted
name (0.10.2 and later) or its flat name, and writes the name that the script's release has.

Sources: OpenRLHF 0.11.2 (`cli/`, `utils/deepspeed/deepspeed.py`, `utils/deepspeed/deepspeed_utils.py`,
`models/actor.py`, `trainer/`), and its tags 0.3.0 to 0.11.0 for older behavior; DeepSpeed 0.19.8 for its treatment of
"auto".
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.loaders import ARGPARSE
from cfglint_train.frameworks.openrlhf.flags import NEWEST, is_ray
from cfglint_train.frameworks.openrlhf.infer import infer
from cfglint_train.frameworks.openrlhf.keys import OpenRLHFKeys
from cfglint_train.frameworks.openrlhf.lenses import LENSES

FRAMEWORK: Final = Framework(
    name="openrlhf",
    default_release=NEWEST,
    lenses=LENSES,
    loader=ARGPARSE,
    infer=infer,
    keys_type=OpenRLHFKeys,
    launch_interface=LaunchInterface(
        uses_all_launched_gpus=lambda config: not is_ray(config),
    ),
    traits=Traits(
        batch_divisor="groups",
        drops_reference_since="0.6.0",
        fills_packs=lambda _: False,
    ),
)
