"""LLaMA-Factory's experimental v1 (`USE_V1=1`), with its own YAML vocabulary and trainers.

Source: LLaMA-Factory 0.9.5 (`v1/config/`, `v1/core/`, `v1/plugins/`), only the parts that affect memory and
checkpoints. The training stage is on the command line (`llamafactory-cli sft x.yaml`), not in the file.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.llamafactory.keys import LlamaFactoryV1Keys
from cfglint_train.frameworks.llamafactory.recognise import prepare
from cfglint_train.frameworks.llamafactory_v1.infer import fill_v1_auto, infer
from cfglint_train.frameworks.llamafactory_v1.lenses import LENSES
from cfglint_train.frameworks.llamafactory_v1.recognise import list_references

NEWEST: Final = "0.9.5"

FRAMEWORK: Final = Framework(
    name="llamafactory_v1",
    default_release=NEWEST,
    lenses=LENSES,
    prepare=prepare,
    references=list_references,
    infer=infer,
    fill_auto=fill_v1_auto,
    keys_type=LlamaFactoryV1Keys,
)
