"""The classes of the layers that models are made of, as FSDP wraps them (`blocks.json`)."""

from __future__ import annotations

import json
import os
from functools import cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

PATH: Final = os.path.join(os.path.dirname(__file__), "blocks.json")


class LayerClasses(Frozen):
    """The classes in the models of one family."""

    decoder: tuple[str, ...]
    encoders: tuple[str, ...]
    """Layers of the encoders beside the decoder."""


def get_layer_classes(model_type: str) -> LayerClasses | None:
    """The classes of a family's layers, by the decoder's `model_type`; None where they are not known."""
    return _load_families().get(model_type)


def is_layer(name: str) -> bool:
    """Whether a class is a layer of some known family."""
    return any(name in family.decoder or name in family.encoders for family in _load_families().values())


@cache
def _load_families() -> dict[str, LayerClasses]:
    with open(PATH, encoding="utf-8") as file:
        content = json.load(file)
    return {
        name: LayerClasses(tuple(decoder), tuple(encoders)) for name, (decoder, encoders) in content["families"].items()
    }
