"""Keys that LLaMA-Factory's own parser accepts: one JSON object per line in, a verdict per line out.

    python tests/oracles/llamafactory_arguments.py < configurations.jsonl
    {"accepted": false, "unused": ["save_safetensors"], "values": {}, "why": null}

Runs `HfArgumentParser.parse_dict` over the dataclasses of `llamafactory-cli train`, with the installed transformers.
The dataclasses' checks of values after parsing need devices and libraries, and are left out.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from typing import Any

os.environ.update(DISABLE_VERSION_CHECK="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")


def parse_config(parser: Any, config: dict[str, Any]) -> dict[str, Any]:
    try:
        filled = parser.parse_dict(config)
    except ValueError as refusal:
        message = str(refusal)
        if "not used by the HfArgumentParser" not in message:
            return {"accepted": False, "unused": [], "values": {}, "why": message}
        unused = sorted(ast.literal_eval(message.partition(": ")[2]))
        return {"accepted": False, "unused": unused, "values": {}, "why": None}
    except TypeError as refusal:  # a required key is missing
        return {"accepted": False, "unused": [], "values": {}, "why": str(refusal)}
    values = {name: value for arguments in filled for name, value in vars(arguments).items()}
    return {"accepted": True, "unused": [], "values": values, "why": None}


def main() -> None:
    from llamafactory.hparams import parser
    from transformers import HfArgumentParser

    for dataclass in parser._TRAIN_ARGS:
        dataclass.__post_init__ = lambda self: None
    argument_parser = HfArgumentParser(parser._TRAIN_ARGS)
    for line in sys.stdin:
        print(json.dumps(parse_config(argument_parser, json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()
