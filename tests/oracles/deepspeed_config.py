"""Whether DeepSpeed's own reader takes a configuration: one JSON object a line in, a verdict a line out.

    python tests/oracles/deepspeed_config.py < configurations.jsonl
    {"accepted": true, "dropped": ["zero_optimisation"], "why": null}

`DeepSpeedConfig` in one process without a GPU. `dropped` are keys at the top that it never looked at.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any


class _WatchedKeys:
    """`keys()` of a mapping that remembers."""

    def __init__(self, mapping: _WatchedDict) -> None:
        self._mapping = mapping

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._mapping)


class _WatchedDict(dict[str, Any]):
    """A mapping that remembers which of its keys were asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read_keys: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read_keys.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read_keys.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        return _WatchedKeys(self)

    def __contains__(self, key: object) -> bool:
        self.read_keys.add(str(key))
        return super().__contains__(key)


def validate(config: dict[str, Any]) -> dict[str, Any]:
    from deepspeed.runtime.config import DeepSpeedConfig

    watched = _WatchedDict(config)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            DeepSpeedConfig(watched)
    except Exception as error:  # whatever its readers raise: pydantic's errors, assertions, its own
        return {"accepted": False, "dropped": [], "why": f"{type(error).__name__}: {error}"}
    return {"accepted": True, "dropped": sorted(set(config) - watched.read_keys), "why": None}


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        print(json.dumps(validate(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
