"""EasyR1: reinforcement learning with FSDP1 and vLLM on the same GPUs, a fork of verl.

A configuration is a YAML file (`python -m verl.trainer.main config=FILE a.b=c`), which OmegaConf merges into
dataclasses. Its releases are not those of verl, and neither is its tree.

Sources: hiyouga/EasyR1 v0.3.0 to v0.3.2 and b44b311 (0.3.3.dev0).
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.dotlist import parse_dotlist
from cfglint_train.frameworks.easyr1.batches import list_even_batches
from cfglint_train.frameworks.easyr1.infer import infer
from cfglint_train.frameworks.easyr1.keys import EasyR1Keys
from cfglint_train.frameworks.easyr1.lenses import LENSES
from cfglint_train.frameworks.easyr1.recognise import prepare
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.verl.lenses import is_dynamic

NEWEST: Final = "0.3.3.dev0"

FRAMEWORK: Final = Framework(
    name="easyr1",
    default_release=NEWEST,
    lenses=LENSES,
    loader=OMEGACONF,
    prepare=prepare,
    infer=infer,
    keys_type=EasyR1Keys,
    launch_interface=LaunchInterface(
        parse_settings=lambda words: parse_dotlist([*words]),
        parse_trailing=lambda _, words: parse_dotlist(words),
        separates_launches=True,
        uses_all_launched_gpus=lambda _: False,  # Ray starts the workers
    ),
    traits=Traits(
        refuses_duplicates_since="",
        fills_packs=lambda config: is_dynamic(config) is True,
        list_even_batches=list_even_batches,
    ),
)
