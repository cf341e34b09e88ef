"""transformers: the names for training that the package exports, and the parameters of its trainers."""

from __future__ import annotations

import re
from typing import Final

from cfglint_schemas.readers.source import Source
from cfglint_schemas.readers.table import ReleaseTable
from tools.schemas.readers.api import list_lazy_names, list_trainers, read_api

_PACKAGE: Final = "transformers"
_TRAINING: Final = re.compile(
    r"\w*(Callback|Dataset|Trainer|TrainingArguments)|Adafactor|AdamW|DataCollator\w*|default_data_collator"
    r"|EvalPrediction|get_(\w+_)?schedule\w*|GreedyLR|HfArgumentParser|IntervalStrategy|SchedulerType|Trainer\w+"
    r"|is_\w+_available|(enable_full_determinism|set_seed|torch_distributed_zero_first)"
    r"|(AqlmConfig|AwqConfig|BitsAndBytesConfig|EetqConfig|GPTQConfig|HqqConfig|QuantoConfig|TorchAoConfig)"
)
"""Names that training scripts import; models do not define any of them."""
_OTHER_LIBRARIES: Final = ("Flax", "TF")


def read(package: str, source: Source) -> ReleaseTable:
    """Return the names and parameters at one release; raise UndecidedError for an unexpected layout."""
    root = source.require_module(_PACKAGE)
    names = [
        name
        for _, names in list_lazy_names(root)
        for name in names
        if _TRAINING.fullmatch(name) and not name.startswith(_OTHER_LIBRARIES)
    ]
    return read_api([(_PACKAGE, names)], list_trainers(source, _PACKAGE, root))
