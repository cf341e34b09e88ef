"""Run OLMo's own configuration loader: one JSON object per line in, a verdict per line out.

    python tests/oracles/olmo_structured.py < configurations.jsonl
    {"accepted": false, "values": {}, "why": "ConfigKeyError: Key 'max_len' not in 'TrainConfig'"}

Follows `TrainConfig.load`: update legacy settings, merge them into the structured configuration with OmegaConf, then
build objects.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1")


def load_config(config: dict[str, Any]) -> dict[str, Any]:
    import omegaconf
    from olmo.config import TrainConfig
    from omegaconf import OmegaConf

    try:
        schema = OmegaConf.structured(TrainConfig)
        merged = OmegaConf.merge(schema, TrainConfig.update_legacy_settings(OmegaConf.create(config)))
        OmegaConf.to_object(merged)
        values = OmegaConf.to_container(merged)
    except (omegaconf.errors.OmegaConfBaseException, TypeError) as refusal:
        return {"accepted": False, "values": {}, "why": f"{type(refusal).__name__}: {str(refusal).splitlines()[0]}"}
    return {"accepted": True, "values": values, "why": None}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(load_config(json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()
