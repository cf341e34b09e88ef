"""Run DeepSpeed's own configuration reader: one JSON object per line in, a verdict per line out.

    python tests/oracles/deepspeed_config.py < configurations.jsonl
    {"accepted": true, "dropped": ["zero_optimisation"], "why": null}

`DeepSpeedConfig` runs in one process without a GPU. `dropped` are top-level keys that it never read.
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
    """A view of a mapping's keys that records membership tests."""

    def __init__(self, mapping: _WatchedDict) -> None:
        self._mapping = mapping

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._mapping)


class _WatchedDict(dict[str, Any]):
    """A mapping that records which of its keys are read."""

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
    except Exception as error:  # its readers raise pydantic's errors, assertions and exceptions of their own
        return {"accepted": False, "dropped": [], "why": f"{type(error).__name__}: {error}"}
    return {"accepted": True, "dropped": sorted(set(config) - watched.read_keys), "why": None}


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        print(json.dumps(validate(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
