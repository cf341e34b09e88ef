"""The layer classes of models, which FSDP wraps (`blocks.json`)."""

from __future__ import annotations

import json
import os
from functools import cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

PATH: Final = os.path.join(os.path.dirname(__file__), "blocks.json")


class LayerClasses(Frozen):
    """The layer classes of one model family."""

    decoder: tuple[str, ...]
    encoders: tuple[str, ...]
    """Layer classes of the encoders, such as a vision tower."""


def get_layer_classes(model_type: str) -> LayerClasses | None:
    """Return the layer classes of a family by the decoder's `model_type`, or None if they are unknown."""
    return _load_families().get(model_type)


def is_layer(name: str) -> bool:
    """Return whether a class is a layer class of a known family, possibly in another case.

    `LLaMADecoderLayer` was the name before transformers 4.28.0, the first release that has the model.
    """
    return name.casefold() in _load_names()


@cache
def _load_names() -> frozenset[str]:
    families = _load_families().values()
    return frozenset(name.casefold() for family in families for name in (*family.decoder, *family.encoders))


@cache
def _load_families() -> dict[str, LayerClasses]:
    with open(PATH, encoding="utf-8") as file:
        content = json.load(file)
    return {
        name: LayerClasses(tuple(decoder), tuple(encoders)) for name, (decoder, encoders) in content["families"].items()
    }
