"""Generator on small packages written for these tests; it reads text and never imports it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tools.schemas import patch
from tools.schemas.__main__ import FRAMEWORKS, Package, choose_releases, main
from tools.schemas.fetch import FetchError, open_tree
from tools.schemas.fold import fold
from tools.schemas.readers import accelerate, deepspeed, transformers_api, trl_api

from cfglint_schemas.readers import axolotl, llamafactory, olmo, olmo_core, openrlhf, verl
from cfglint_schemas.readers.source import Source, UndecidedError, evaluate, unquote_annotation
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.readers.tree import SourceTree

BOOM = "raise SystemExit('imported')\n"


def build_source(package: str, files: dict[str, str]) -> Source:
    """Build a package from its modules, given by dotted name.

    Every module raises SystemExit when imported.
    """
    texts = {name.replace(".", "/") + ".py": BOOM + textwrap.dedent(text) for name, text in files.items()}
    for path in list(texts):
        folder = Path(path).parent
        while folder.parts:
            texts.setdefault(f"{folder.as_posix()}/__init__.py", "")
            folder = folder.parent
    return Source(SourceTree(package, "1.0", texts))


AXOLOTL = {
    "axolotl.utils.schemas.enums": """
        from enum import Enum
        class Kind(str, Enum):
            one = "ONE"
            two = "TWO"
    """,
    "axolotl.utils.schemas.fsdp": """
        from typing import Literal
        from pydantic import AliasChoices, BaseModel, Field
        class FSDP(BaseModel):
            version: int | None = Field(validation_alias=AliasChoices("version", "fsdp_version"), default=None)
            state: Literal["FULL", "SHARDED"] | None = None
    """,
    "axolotl.utils.schemas.config": """
        from typing import Annotated, Any, Optional, Union
        from annotated_types import MinLen
        from pydantic import BaseModel, Field
        from transformers import SchedulerType
        from .enums import Kind
        from axolotl.utils.schemas.fsdp import FSDP
        LENGTH = 2 << 9
        class Row(BaseModel):
            path: str
            split: str | None = None
        class Base(BaseModel):
            steps: int | None = 5
            inherited: "Optional[bool]" = None
        class AxolotlInputConfig(Base):
            model_config = {"populate_by_name": True}
            steps: int = LENGTH
            rate: Union[str, float]
            kind: Kind | None = Kind.one
            rows: Annotated[list[Row], MinLen(1)] | None = Field(default=None, ge=0)
            size: int = Field(default=4, ge=1, lt=9)
            renamed: dict | None = Field(default=None, alias="old")
            fsdp: FSDP | dict[str, Any] | None = None
            scheduler: SchedulerType | None = None
            gone: bool | None = Field(default=None, deprecated="Use steps")
            made: list[str] = Field(default_factory=list)
            unknowable: str = compute()
            _private: int = 1
    """,
    "axolotl.integrations.base": "class BasePlugin:\n    pass\n",
    "axolotl.integrations.liger.args": """
        from pydantic import BaseModel
        class LigerArgs(BaseModel):
            liger_rope: bool | None = None
    """,
    "axolotl.integrations.liger.plugin": """
        from axolotl.integrations.base import BasePlugin
        class LigerPlugin(BasePlugin):
            def get_input_args(self):
                return "axolotl.integrations.liger.args.LigerArgs"
    """,
    "axolotl.integrations.liger.__init__": "from .plugin import LigerPlugin\n",
}


def read_axolotl() -> ReleaseTable:
    return axolotl.read("axolotl", build_source("axolotl", AXOLOTL))


def test_axolotl_types_defaults_and_bounds() -> None:
    keys = read_axolotl().definitions["AxolotlInputConfig"].keys
    assert {name: key.schema for name, key in keys.items()} == {
        "steps": {"type": "integer", "default": 1024},
        "inherited": {"type": ["boolean", "null"], "default": None},
        "rate": {"type": ["number", "string"], "x-required": True},
        "kind": {"enum": ["ONE", "TWO", None], "default": "ONE"},
        "rows": {
            "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Row"}, "minItems": 1}, {"type": "null"}],
            "minimum": 0,
            "default": None,
        },
        "size": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "default": 4},
        "renamed": {"type": ["object", "null"], "default": None},
        "fsdp": {"anyOf": [{"$ref": "#/$defs/FSDP"}, {"type": ["object", "null"]}], "default": None},
        "scheduler": {"anyOf": [{"x-external": "transformers.SchedulerType"}, {"type": "null"}], "default": None},
        "gone": {"type": ["boolean", "null"], "default": None, "deprecated": True},
        "made": {"type": "array", "items": {"type": "string"}, "default": []},
        "unknowable": {"type": "string", "x-computed": True},
        "liger_rope": {"type": ["boolean", "null"], "default": None},
    }


def test_axolotl_aliases_gates_and_unknown_names() -> None:
    table = read_axolotl()
    keys = table.definitions["AxolotlInputConfig"].keys
    assert keys["renamed"].aliases == ("old",)
    assert table.definitions["FSDP"].keys["version"].aliases == ("fsdp_version",)
    assert keys["liger_rope"].gate == {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}
    assert keys["steps"].gate is None
    assert {definition.unknown for definition in table.definitions.values()} == {"dropped"}


def test_axolotl_without_its_root_class_is_an_error() -> None:
    with pytest.raises(UndecidedError, match=r"axolotl 1\.0 has none of"):
        axolotl.read("axolotl", build_source("axolotl", {"axolotl.other": "x = 1"}))


@pytest.mark.parametrize(
    ("configuration", "effect"),
    [
        ('model_config = {"extra": "forbid"}', "error"),
        ('model_config = ConfigDict(extra="allow")', "kept"),
        ("model_config = ConfigDict(frozen=True)", "dropped"),
        ("class Config:\n        extra = Extra.forbid", "error"),
    ],
)
def test_pydantic_models_say_what_happens_to_unknown_names(configuration: str, effect: str) -> None:
    files = {
        **AXOLOTL,
        "axolotl.utils.schemas.config": f"""
from pydantic import BaseModel
class AxolotlInputConfig(BaseModel):
    {configuration}
    steps: int = 1
""",
    }
    table = axolotl.read("axolotl", build_source("axolotl", files))
    assert table.definitions["AxolotlInputConfig"].unknown == effect


def test_olmo_enumerations_go_by_name_and_nested_dataclasses_are_definitions() -> None:
    table = olmo.read(
        "ai2-olmo",
        build_source(
            "ai2-olmo",
            {
                "olmo.util": "class StrEnum:\n    pass\n",
                "olmo.config": """
                from dataclasses import dataclass, field
                from typing import Dict, List, Optional, Union
                from torch.distributed.fsdp import ShardingStrategy
                from .util import StrEnum
                class Kind(StrEnum):
                    whole = "Whole"
                @dataclass
                class BaseConfig:
                    CONSTANT = 1
                @dataclass
                class Inner(BaseConfig):
                    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
                @dataclass
                class TrainConfig(BaseConfig):
                    kind: Optional[Kind] = None
                    inner: Inner = field(default_factory=Inner)
                    rows: List[Inner] = field(default_factory=list)
                    limit: Union[int, str] = 10_000
                    hidden: int = field(default=1, init=False)
            """,
            },
        ),
    )
    assert {name: key.schema for name, key in table.definitions["TrainConfig"].keys.items()} == {
        "kind": {"enum": ["whole", None], "default": None},
        "inner": {"$ref": "#/$defs/Inner", "x-computed": True},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Inner"}, "default": []},
        "limit": {"type": ["integer", "string"], "default": 10000},
        "hidden": {"type": "integer", "default": 1},
    }
    assert table.definitions["Inner"].keys["strategy"].schema == {
        "x-external": "torch.distributed.fsdp.ShardingStrategy",
        "x-computed": True,
    }
    assert table.definitions["TrainConfig"].unknown == "error"


def test_olmo_core_classes_go_by_name_and_a_shared_name_by_the_outer_module() -> None:
    table = olmo_core.read(
        "ai2-olmo-core",
        build_source(
            "ai2-olmo-core",
            {
                "olmo_core.config": "from dataclasses import dataclass\n@dataclass\nclass Config:\n    pass\n",
                "olmo_core.train.config": """
                from dataclasses import dataclass
                from ..config import Config
                @dataclass
                class TrainerConfig(Config):
                    save_folder: str
                    max_steps: int = 5
                @dataclass
                class Filter(Config):
                    a: int = 1
                class NotAConfig:
                    b: int = 2
            """,
                "olmo_core.data.deep.filters": """
                from dataclasses import dataclass
                from olmo_core.config import Config
                @dataclass
                class Filter(Config):
                    c: int = 3
            """,
            },
        ),
    )
    classes = table.definitions["(classes)"]
    assert classes.unknown == "kept"
    assert classes.keys["TrainerConfig"].schema == {"$ref": "#/$defs/TrainerConfig"}
    assert classes.keys["Filter"].schema == {
        "anyOf": [{"$ref": "#/$defs/Filter"}, {"$ref": "#/$defs/olmo_core.data.deep.filters.Filter"}]
    }
    assert set(table.definitions["Filter"].keys) == {"a"}
    assert "NotAConfig" not in classes.keys


def test_llamafactory_commands_share_dataclasses_and_leave_transformers_to_its_own_axis() -> None:
    table = llamafactory.read(
        "llamafactory",
        build_source(
            "llamafactory",
            {
                "llamafactory.hparams.model_args": """
                from dataclasses import dataclass, field
                @dataclass
                class Quantization:
                    bits: int | None = field(default=None, metadata={"help": "text that stays where it is"})
                @dataclass
                class ModelArguments(Quantization):
                    name: str | None = None
                    device: str | None = field(default=None, init=False)
            """,
                "llamafactory.hparams.parser": """
                from transformers import Seq2SeqTrainingArguments
                from .model_args import ModelArguments
                _TRAIN_ARGS = [ModelArguments, Seq2SeqTrainingArguments]
                _INFER_ARGS = [ModelArguments]
                if available():
                    from mcore_adapter import TrainingArguments as Mca
                    _TRAIN_MCA_ARGS = [ModelArguments, Mca]
                else:
                    _TRAIN_MCA_ARGS = []
            """,
            },
        ),
    )
    assert dict(table.entries) == {
        "train": ("ModelArguments", "TrainingArguments"),
        "infer": ("ModelArguments",),
        "mca": ("ModelArguments", "mcore_adapter.TrainingArguments"),
    }
    assert set(table.definitions["ModelArguments"].keys) == {"bits", "name"}
    assert table.definitions["mcore_adapter.TrainingArguments"].unknown == "kept"
    assert table.definitions["TrainingArguments"] == Definition({})


def test_llamafactory_takes_the_words_that_it_asserts() -> None:
    arguments = """
        from dataclasses import dataclass
        from typing import Literal
        @dataclass
        class FinetuningArguments:
            finetuning_type: Literal["lora", "full"] = "lora"
            bit: int | None = None
            def __post_init__(self):
                assert self.finetuning_type in ["lora", "oft", "full"], "Invalid fine-tuning method."
                assert self.bit in [None, 8, 4], "We only accept 4-bit or 8-bit quantization."
    """
    parser = """
        from .finetuning_args import FinetuningArguments
        _TRAIN_ARGS = [FinetuningArguments]
    """
    files = {"llamafactory.hparams.finetuning_args": arguments, "llamafactory.hparams.parser": parser}
    keys = (
        llamafactory.read("llamafactory", build_source("llamafactory", files)).definitions["FinetuningArguments"].keys
    )
    assert keys["finetuning_type"].schema["enum"] == ["lora", "full", "oft"]
    assert keys["bit"].schema["type"] == ["integer", "null"]


@pytest.mark.parametrize(("registered", "words"), [
    ('register_template(name="b", x=1)\nregister_template(name="a")', ["a", "b", None]),
    ('_register_template(name="a")', ["a", None]),
    ('for one in NAMES:\n    register_template(name=one)', None),
    ("", None),
])  # fmt: skip
def test_llamafactory_takes_the_templates_that_it_registers(registered, words) -> None:
    arguments = """
        from dataclasses import dataclass
        @dataclass
        class DataArguments:
            template: str | None = None
    """
    parser = """
        from .data_args import DataArguments
        _TRAIN_ARGS = [DataArguments]
    """
    files = {
        "llamafactory.hparams.data_args": arguments,
        "llamafactory.hparams.parser": parser,
        "llamafactory.data.template": registered,
    }
    keys = llamafactory.read("llamafactory", build_source("llamafactory", files)).definitions["DataArguments"].keys
    assert keys["template"].schema.get("enum") == words


def test_transformers_arguments_are_read_through_inheritance() -> None:
    table = llamafactory.read(
        "transformers",
        build_source(
            "transformers",
            {
                "transformers.training_args": """
                from dataclasses import dataclass, field
                @dataclass
                class TrainingArguments:
                    output_dir: str | None = field(default=None)
                    bf16: bool = False
            """,
                "transformers.training_args_seq2seq": """
                from dataclasses import dataclass
                from .training_args import TrainingArguments
                @dataclass
                class Seq2SeqTrainingArguments(TrainingArguments):
                    predict_with_generate: bool = False
            """,
            },
        ),
    )
    assert set(table.definitions["TrainingArguments"].keys) == {"output_dir", "bf16", "predict_with_generate"}
    assert not table.entries


def test_openrlhf_flags_through_loops_helpers_and_groups() -> None:
    table = openrlhf.read(
        "openrlhf",
        build_source(
            "openrlhf",
            {
                "openrlhf.utils.flags": """
                def add_common(parser):
                    parser.add_argument("--common", type=int, default=int(1e8))
            """,
                "openrlhf.cli.train_sft": """
                import argparse
                from openrlhf.utils.flags import add_common
                if __name__ == "__main__":
                    parser = argparse.ArgumentParser()
                    add_common(parser)
                    parser.add_argument("--bf16", action="store_true", default=False)
                    parser.add_argument("--stage", "-s", type=int, choices=[0, 2, 3], default=2)
                    parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
                    parser.add_argument("--modules", nargs="*")
                    parser.add_argument("--name", required=True)
                    parser.add_argument("--limit", type=float, default=float("inf"))
                    parser.add_argument("positional")
                    for role in ("actor", "critic"):
                        parser.add_argument(f"--{role}.lr", type=float, default=1e-6 if role == "actor" else 9e-6)
                        parser.add_argument(f"--{role}.no_x", dest=f"{role}.x", action="store_false")
                    args = parser.parse_args()
                    parser.add_argument("--too_late", action="store_true")
            """,
                "openrlhf.cli.helper": "x = 1",
            },
        ),
    )
    assert list(table.entries) == ["train_sft"]
    keys = table.definitions["train_sft"].keys
    assert {name: key.schema for name, key in keys.items()} == {
        "--common": {"type": "integer", "default": 100000000},
        "--bf16": {"type": "boolean", "default": False, "x-flag": True},
        "--stage": {"enum": [0, 2, 3], "default": 2},
        "--betas": {
            "type": "array",
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 2,
            "default": [0.9, 0.95],
        },
        "--modules": {
            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}, {"enum": [True]}],
            "default": None,
        },
        "--name": {"type": "string", "x-required": True},
        "--limit": {"type": "number", "x-computed": True},
        "--actor.lr": {"type": "number", "default": 1e-6},
        "--critic.lr": {"type": "number", "default": 9e-6},
        "--actor.no_x": {"type": "boolean", "default": True, "x-flag": True, "x-sets": "actor.x"},
        "--critic.no_x": {"type": "boolean", "default": True, "x-flag": True, "x-sets": "critic.x"},
    }
    assert keys["--stage"].aliases == ("-s",)


DEEPSPEED = {
    "deepspeed.runtime.constants": 'OPTIMIZER = "optimizer"\nTYPE = "type"\nCLIP = "clip"\nCLIP_DEFAULT = 0.\n',
    "deepspeed.runtime.config_utils": """
        from pydantic import BaseModel, ConfigDict
        class DeepSpeedConfigModel(BaseModel):
            model_config = ConfigDict(extra="forbid", populate_by_name=True)
        class pp_int(int):
            pass
        def get_scalar_param(param_dict, name, default):
            return param_dict.get(name, default)
    """,
    "deepspeed.runtime.zero.config": """
        import sys
        from pydantic import Field
        from deepspeed.runtime.config_utils import DeepSpeedConfigModel, pp_int
        def get_zero_config(param_dict):
            if "zero_optimization" in param_dict:
                section = param_dict["zero_optimization"]
                if isinstance(section, bool):
                    section = old_section(param_dict)
            else:
                section = {}
            return ZeroConfig(**section)
        def old_section(param_dict):
            return {"size": param_dict.get("allgather_size", 7)}
        class ZeroConfig(DeepSpeedConfigModel):
            bucket: int = Field(pp_int(5e8), gt=0, alias="stage3_bucket")
            limit: int = Field(pp_int(sys.maxsize, "sys.maxsize"))
            cpu_offload: bool = Field(None, json_schema_extra={"deprecated": True, "new_param": "offload"})
            offload: dict | None = None
    """,
    "deepspeed.runtime.config": """
        import copy
        import hjson
        from deepspeed.runtime.config_utils import get_scalar_param
        from deepspeed.runtime.zero.config import get_zero_config
        from .constants import *
        _REMOVED_TOP_LEVEL_CONFIG_KEYS = {"nebula": "gone"}
        _REMOVED_ZERO_CONFIG_KEYS = {"mics": "gone"}
        def get_named(param_dict, key="comm_type", default=None):
            return get_scalar_param(param_dict, key, default)
        def get_optimizer_name(param_dict):
            if OPTIMIZER in param_dict.keys() and TYPE in param_dict[OPTIMIZER].keys():
                return param_dict[OPTIMIZER][TYPE]
        def get_amp(param_dict):
            if "amp" in param_dict:
                rest = copy.copy(param_dict["amp"])
                rest.pop("enabled")
                return param_dict["amp"].get("enabled", False), rest
        class Sub:
            def __init__(self, param_dict):
                section = param_dict.get("sub", {})
                self._read(section)
            def _read(self, section):
                self.depth = get_scalar_param(section, "depth", 3)
        class DeepSpeedConfig:
            def __init__(self, config):
                self._param_dict = hjson.load(config)
                self._initialize_params(copy.copy(self._param_dict))
            def _initialize_params(self, param_dict):
                self.clip = get_scalar_param(param_dict, CLIP, CLIP_DEFAULT)
                self.name = get_optimizer_name(param_dict)
                self.zero = get_zero_config(param_dict)
                self.amp = get_amp(param_dict)
                self.sub = Sub(param_dict)
                self.comm = get_named(param_dict)
                self.seq = get_named(param_dict, "seq_type", "fp32")
                for key in ("bf16", "bfloat16"):
                    if key in param_dict:
                        self.bf16 = get_scalar_param(param_dict[key], "enabled", False)
                self.monitors = {key: param_dict.get(key, {}) for key in ("csv", "wandb")}
    """,
}


def test_deepspeed_settings_are_what_the_reader_looks_up() -> None:
    table = deepspeed.read("deepspeed", build_source("deepspeed", DEEPSPEED))
    root = table.definitions["DeepSpeedConfig"]
    assert {name: key.schema for name, key in root.keys.items()} == {
        "allgather_size": {"type": "integer", "default": 7, "x-unchecked": True},
        "amp": {"$ref": "#/$defs/amp"},
        "bf16": {"$ref": "#/$defs/bf16"},
        "bfloat16": {"$ref": "#/$defs/bfloat16"},
        "clip": {"type": "number", "default": 0.0, "x-unchecked": True},
        "comm_type": {"default": None, "x-unchecked": True},
        "csv": {"type": "object", "default": {}, "x-unchecked": True},
        "nebula": {"x-removed": "error"},
        "optimizer": {"$ref": "#/$defs/optimizer"},
        "seq_type": {"type": "string", "default": "fp32", "x-unchecked": True},
        "sub": {"$ref": "#/$defs/sub"},
        "wandb": {"type": "object", "default": {}, "x-unchecked": True},
        "zero_optimization": {"$ref": "#/$defs/ZeroConfig"},
    }
    assert root.unknown == "dropped"
    # A mapping that keys are popped from is passed on with the remaining ones.
    assert table.definitions["amp"].unknown == "kept"
    assert set(table.definitions["sub"].keys) == {"depth"}
    assert set(table.definitions["optimizer"].keys) == {"type"}


def test_deepspeed_models_go_by_alias_and_name_their_successors() -> None:
    table = deepspeed.read("deepspeed", build_source("deepspeed", DEEPSPEED))
    zero = table.definitions["ZeroConfig"]
    assert zero.unknown == "error"
    assert zero.keys["stage3_bucket"].schema == {"type": "integer", "exclusiveMinimum": 0, "default": 500000000}
    assert zero.keys["stage3_bucket"].aliases == ("bucket",)
    assert zero.keys["limit"].schema["default"] == 2**63 - 1
    assert zero.keys["cpu_offload"].schema["x-replacement"] == ["offload"]
    assert zero.keys["cpu_offload"].schema["x-carried"] is True


def test_accelerate_sections_are_the_launcher_flags() -> None:
    table = accelerate.read(
        "accelerate",
        build_source(
            "accelerate",
            {
                "accelerate.commands.config.config_args": """
                from dataclasses import dataclass
                from typing import Optional
                @dataclass
                class BaseConfig:
                    mixed_precision: str
                @dataclass
                class ClusterConfig(BaseConfig):
                    num_processes: int = -1
                    fsdp_config: Optional[dict] = None
                    deepspeed_config: Optional[dict] = None
                @dataclass
                class SageMakerConfig(BaseConfig):
                    region: str = "us-east-1"
                    fsdp_config: Optional[dict] = None
            """,
                "accelerate.commands.launch": """
                import argparse
                def launch_command_parser():
                    parser = argparse.ArgumentParser()
                    deepspeed_args = parser.add_argument_group("DeepSpeed Arguments")
                    deepspeed_args.add_argument("--zero_stage", default=None, type=int)
                    fsdp_args = parser.add_argument_group("FSDP Arguments")
                    fsdp_args.add_argument("--fsdp_offload_params", default="false", type=str)
                    parser.add_argument("--debug", action="store_true")
                def validate(args, defaults):
                    for name, attr in defaults.items():
                        for key in attr:
                            if name == "fsdp_config" and not key.startswith("fsdp"):
                                key = "fsdp_" + key
            """,
            },
        ),
    )
    assert set(table.definitions["fsdp_config"].keys) == {"fsdp_offload_params"}
    assert table.definitions["fsdp_config"].keys["fsdp_offload_params"].aliases == ("offload_params",)
    assert set(table.definitions["deepspeed_config"].keys) == {"zero_stage"}
    assert table.definitions["deepspeed_config"].keys["zero_stage"].aliases == ()
    assert table.definitions["deepspeed_config"].unknown == "dropped"
    assert table.definitions["ClusterConfig"].unknown == "error"
    assert table.definitions["SageMakerConfig"].keys["fsdp_config"].schema == {
        "type": ["object", "null"],
        "default": None,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 << 10", 1024),
        ("-3", -3),
        ("[1, (2, 3)]", [1, [2, 3]]),
        ('f"a{1 + 1}b"', "a2b"),
        ("Kind.one", "ONE"),
        ("Kind.one.value", "ONE"),
        ("TABLE", {"a": 1}),
        ("list(TABLE.keys())", ["a"]),
        ('int(1e8) if "x" == "x" else 0', 100000000),
    ],
)
def test_constants_are_evaluated(text: str, value: Any) -> None:
    module = build_source("p", {"p.m": "from .n import Kind\nTABLE = {'a': 1}\n", "p.n": _KINDS}).require_module("p.m")
    assert evaluate(module, parse_unquoted(text)) == value


_KINDS = "from enum import Enum\nclass Kind(str, Enum):\n    one = 'ONE'\n"


def parse_unquoted(text: str) -> Any:
    import ast

    return unquote_annotation(ast.parse(repr(text), mode="eval").body)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')", "missing", "Kind.three", "os.environ['A']", "1 / 0", "LOOP", "lambda: 1", "10 ** 10 ** 9",
        "1 << 10 ** 9", "'x' * 10 ** 12", "10 ** 12 * [0]", "-'a'", "{[1]: 2}",
    ],
)  # fmt: skip
def test_what_the_text_does_not_settle_is_undecided(text: str) -> None:
    module = build_source(
        "p", {"p.m": "import os\nfrom .n import Kind\nLOOP = LOOP + 1\n", "p.n": _KINDS}
    ).require_module("p.m")
    with pytest.raises(UndecidedError):
        evaluate(module, parse_unquoted(text))


def write_modules(tree: dict[str, str], folder: Path) -> Path:
    for name, text in tree.items():
        path = folder / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BOOM + textwrap.dedent(text))
    for path in list(folder.rglob("*.py")):
        for parent in path.relative_to(folder).parents:
            if parent.parts:
                (folder / parent / "__init__.py").touch()
    return folder


def test_command_updates_once_and_then_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_modules({"olmo.config": _OLMO.format(extra="")}, tmp_path / "one")
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    command = ["olmo", "--from", str(folder), "--schemas", str(schemas), "--releases"]
    assert main([*command, "1.0"]) == 0
    assert capsys.readouterr().out.endswith("olmo.json: updated\n")
    written = (schemas / "olmo.json").read_bytes()
    assert main([*command, "1.0"]) == 0
    assert capsys.readouterr().out.endswith("olmo.json: unchanged\n")
    assert (schemas / "olmo.json").read_bytes() == written
    newer = write_modules({"olmo.config": _OLMO.format(extra="new: int = 1")}, tmp_path / "two")
    assert main(["olmo", "--from", str(newer), "--schemas", str(schemas), "--releases", "1.1"]) == 0
    properties = json.loads((schemas / "olmo.json").read_text())["$defs"]["TrainConfig"]["properties"]
    assert properties["new"]["x-releases"] == [{"since": "1.1"}]
    assert properties["activation_checkpointing"]["x-releases"] == [{"since": "1.0"}]


_OLMO = """
    from dataclasses import dataclass
    @dataclass
    class FSDPConfig:
        sharding_strategy: str = "x"
    @dataclass
    class SpeedMonitorConfig:
        gpu_flops_available: int = 1
    @dataclass
    class DataConfig:
        memmap_dtype: str = "uint16"
    @dataclass
    class TrainConfig:
        activation_checkpointing: bool = False
        fsdp: FSDPConfig = None
        speed: SpeedMonitorConfig = None
        data: DataConfig = None
        precision: str = None
        {extra}
"""


def test_command_says_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_modules({"other.config": "x = 1"}, tmp_path / "one")
    assert main(["olmo", "--from", str(folder), "--schemas", str(tmp_path), "--releases", "1.0"]) == 1
    assert "does not hold the package olmo" in capsys.readouterr().err
    assert main(["olmo", "--from", str(folder), "--schemas", str(tmp_path), "--releases", "1.0,2.0"]) == 1
    assert "--from takes exactly one release" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


def test_archives_open_like_folders(tmp_path: Path) -> None:
    import tarfile
    import zipfile

    folder = write_modules({"olmo.config": "x = 1", "olmo.sub.deep": "y = 2"}, tmp_path / "olmo-1.0")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel, tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sources:
        for path in sorted(folder.rglob("*.py")):
            wheel.write(path, f"pkg.data/purelib/{path.relative_to(folder)}")
            sources.add(path, f"olmo-1.0/src/{path.relative_to(folder)}")
        wheel.writestr("other/config.py", "z = 3")
    trees = [
        open_tree(place, "ai2-olmo", "1.0", "olmo") for place in (folder, tmp_path / "a.whl", tmp_path / "a.tar.gz")
    ]
    assert trees[0].files == trees[1].files == trees[2].files
    assert set(trees[0].files) == {
        "olmo/__init__.py",
        "olmo/config.py",
        "olmo/sub/__init__.py",
        "olmo/sub/deep.py",
    }
    with pytest.raises(FetchError, match="does not hold the package axolotl"):
        open_tree(tmp_path / "a.whl", "axolotl", "1.0", "axolotl")


def test_releases_to_read() -> None:
    listed = ["0.1", "1.0.0", "1.0.1", "1.1.0", "1.2.1", "1.2.2", "1.2.3"]
    assert choose_releases(Package("p", "p", "1.0"), listed) == ["1.0.0", "1.0.1", "1.1.0", "1.2.1", "1.2.2", "1.2.3"]
    assert choose_releases(Package("p", "p", "1.0", minors=True), listed) == ["1.0.0", "1.1.0", "1.2.1", "1.2.3"]


def fold_sample() -> dict[str, Any]:
    table = ReleaseTable({"Root": Definition({"a": TableKey({"type": "integer", "default": 1})})}, {"train": ("Root",)})
    return fold({"main": {"1.0": table}}, "sample")


@pytest.mark.parametrize(
    ("patches", "complaint"),
    [
        ({"status": [{"keys": ["Root/a"], "kind": "removed", "since": "1.0"}]}, "no `source`"),
        ({"status": [{"keys": ["Root/a"], "kind": "odd", "since": "1.0", "source": "x"}]}, "unknown kind"),
        ({"status": [{"keys": ["No/a"], "kind": "removed", "since": "1.0", "source": "x"}]}, "no definition No"),
        ({"keys": [{"keys": ["Root/a"], "since": "1.0", "source": "x"}]}, "declared by the framework itself"),
        ({"keys": [{"keys": ["Root/b"], "source": "x"}]}, "no `since`"),
        ({"also": [{"keys": ["Root/b"], "since": "1.0", "schema": {}, "source": "x"}]}, "no such key"),
    ],
)
def test_patches_that_cannot_hold_are_refused(patches: dict[str, Any], complaint: str) -> None:
    with pytest.raises(patch.PatchError, match=complaint):
        patch.apply_patches(fold_sample(), patches)


def test_every_patch_names_its_source_and_sources_stay_out_of_the_schema() -> None:
    for framework in FRAMEWORKS:
        patches = patch.load_patches(framework)
        items = [item for part in patches.values() if isinstance(part, list) for item in part]
        assert all(item["source"] for item in items)
        assert '"source"' not in json.dumps(patch.apply_patches(fold_sample(), {}))


TRL = {
    "trl.__init__": """
        _import_structure = {"trainer": ["BCOTrainer", "SFTTrainer"], "core": ["masked_mean"]}
        try:
            import diffusers
        except ImportError:
            pass
        else:
            _import_structure["trainer"].extend(["DDPOTrainer"])
    """,
    "trl.core": "import torch\nfrom transformers import set_seed\nLIMIT = 1\ndef masked_mean(values): ...\n",
    "trl._hidden": "def secret(): ...\n",
    "trl.trainer.__init__": '_import_structure = {"bco": ["BCOTrainer"], "sft": ["SFTTrainer"]}\n',
    "trl.trainer.base": "class Base:\n    def __init__(self, model, *, tokens=None, **kwargs): ...\n",
    "trl.trainer.bco": """
        from .base import Base
        class BCOTrainer(Base):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
    """,
    "trl.trainer.sft": """
        class SFTTrainer:
            @deprecate_kwarg("tokenizer", "0.16.0", "processing_class")
            def __init__(self, model, args=None, processing_class=None): ...
    """,
}


def test_trl_modules_export_names_and_trainers_have_parameters() -> None:
    table = trl_api.read("trl", build_source("trl", TRL))
    names = {name: (sorted(definition.keys), definition.unknown) for name, definition in table.definitions.items()}
    assert names["trl"][0] == ["BCOTrainer", "DDPOTrainer", "SFTTrainer", "core", "masked_mean", "trainer"]
    assert names["trl.core"][0] == ["LIMIT", "masked_mean", "set_seed"]
    assert names["SFTTrainer"] == (["args", "model", "processing_class", "tokenizer"], "error")
    assert names["BCOTrainer"] == (["model", "tokens"], "kept")
    assert not any("_hidden" in name for name in names)


def test_transformers_exports_the_names_for_training() -> None:
    files = {
        "transformers.__init__": """
            _import_structure = {"trainer": ["Trainer"], "optimization": ["AdamW"], "models.bert": ["BertModel"]}
        """,
        "transformers.trainer": "class Trainer:\n    def __init__(self, model=None, args=None): ...\n",
    }
    table = transformers_api.read("transformers", build_source("transformers", files))
    assert sorted(table.definitions["transformers"].keys) == ["AdamW", "Trainer"]
    assert sorted(table.definitions["Trainer"].keys) == ["args", "model"]


VERL = {
    "verl/trainer/config/ppo_trainer.yaml": """
        defaults:
          - model_engine: dp
          - actor@actor_rollout_ref.actor: ${model_engine}_actor
          - _self_
        data: {size: 1024, kwargs: {}}
        reward_model: {enable: false}
        critic: {_target_: verl.workers.config.Actor, rate: 1}
        actor_rollout_ref: {rollout: {length: 1}}
        turbo_config: {plan: {size: 1}}
        trainer:
          nnodes: 1
          total_steps: ???
          per_gpu: ${oc.select:data.size,1}
    """,
    "verl/trainer/config/ppo_megatron_trainer.yaml": """
        defaults: [ppo_trainer, override model_engine: megatron, _self_]
    """,
    "verl/trainer/config/model_engine/dp.yaml": "# @package _global_\nmodel_engine: dp\n",
    "verl/trainer/config/model_engine/megatron.yaml": "# @package _global_\nmodel_engine: megatron\n",
    "verl/trainer/config/actor/dp_actor.yaml": """
        defaults: [../optim@optim: [base, fsdp], actor, _self_]
        _target_: verl.workers.config.Actor
        clip: 2e-1
    """,
    "verl/trainer/config/actor/megatron_actor.yaml": "defaults: [actor, _self_]\nmegatron: {tensor: 1}\n",
    "verl/trainer/config/actor/actor.yaml": "clip: 0.1\nmicro: null\n",
    "verl/trainer/config/optim/base.yaml": "lr: 1\ndecay: 0\n",
    "verl/trainer/config/optim/fsdp.yaml": "lr: 1e-6\n",
    "verl/workers/config.py": """
        from dataclasses import dataclass, field
        from typing import Optional
        @dataclass
        class Actor:
            _target_: str = ""
            clip: float = 0.2
            micro: Optional[int] = None
            optim: dict = field(default_factory=dict)
            hidden: bool = False
    """,
    "verl/workers/worker.py": """
        def build(self, config):
            actor = omega_conf_to_dataclass(self.config.actor)
            if config.trainer.get("validate", True) or "more" in config.data:
                return actor
        def validate(config):
            return build(None, config), omega_conf_to_dataclass(config.critic)
        def sample(data_config, model_config):
            return data_config.get("seed", 1), getattr(data_config, "order", None), model_config.heads
    """,
    "verl/trainer/ppo/ray_trainer.py": """
        def fit(self):
            reward_config = self.config.reward_model if self.trains else self.config.data
            mode, nodes = self.config.get("mode", "none"), self.config.trainer.nodes
            second_config = deepcopy(self.config.actor_rollout_ref)
            second_config.rollout.length = second_config.rollout.get("second_length", 1)
            return mode, nodes, reward_config.get("examined", 0), self.config.unread
    """,
    "verl/workers/fsdp_workers.py": """
        class CriticWorker(Worker):
            def score(self):
                return self.config.get("rating")
        class RewardModelWorker(Worker):
            def score(self):
                return self.config.format_text
    """,
    "verl/workers/rollout/engine.py": "passed = [key for key in config if hasattr(SamplingParams(), key)]\n",
    "verl/workers/reward_manager/own.py": "def __init__(self, config):\n    self.factor = config.own.get('factor')\n",
}


def test_verl_trees_are_composed_and_dataclasses_add_their_fields() -> None:
    files = {path: textwrap.dedent(text).lstrip("\n") for path, text in VERL.items()}
    table = verl.read("verl", Source(SourceTree("verl", "1.0", files)))
    assert table.entries == {"ppo_trainer": ("ppo_trainer",), "ppo_megatron_trainer": ("ppo_megatron_trainer",)}
    root = table.definitions["ppo_trainer"]
    assert root.keys["model_engine"].schema == {"enum": ["dp", "megatron"], "default": "dp"}
    actor = table.definitions["actor_rollout_ref.actor"]
    assert actor.unknown == "error"
    assert actor.keys["clip"].schema == {"type": "number", "default": 0.2, "x-unchecked": True}
    assert actor.keys["micro"].schema == {"type": ["integer", "null"], "default": None, "x-unchecked": True}
    assert actor.keys["hidden"].schema == {"type": "boolean", "default": False, "x-unchecked": True, "x-absent": True}
    assert table.definitions["actor_rollout_ref.actor.optim"].keys["lr"].schema["default"] == 1e-6
    assert set(table.definitions["actor_rollout_ref.actor.optim"].keys) == {"lr", "decay"}
    trainer = table.definitions["trainer"]
    assert trainer.unknown == "dropped"
    assert trainer.keys["total_steps"].schema == {"x-required": True, "x-unchecked": True}
    assert trainer.keys["per_gpu"].schema["x-interpolation"] == "${oc.select:data.size,1}"
    assert trainer.keys["validate"].schema == {"x-absent": True, "x-unchecked": True}
    assert all("x-absent" in table.definitions["data"].keys[key].schema for key in ("more", "seed", "order"))
    assert set(table.definitions["reward_model"].keys) == {"enable", "own", "examined", "format_text"}
    assert set(table.definitions["critic"].keys) == {"_target_", "rate", "rating"}  # nothing calls `validate`
    rollout = table.definitions["actor_rollout_ref.rollout"].keys
    assert (
        rollout["second_length"].schema
        == rollout["repetition_penalty"].schema
        == {"x-absent": True, "x-unchecked": True}
    )
    assert root.keys["mode"].schema == {"x-absent": True, "x-unchecked": True}
    assert "unread" not in root.keys
    assert table.definitions["turbo_config.plan"].unknown == "kept"
    megatron = table.definitions["ppo_megatron_trainer:actor_rollout_ref.actor"]
    assert megatron.unknown == "dropped"
    assert set(megatron.keys) == {"clip", "micro", "megatron"}
    assert table.definitions["ppo_megatron_trainer"].keys["trainer"].schema == {"$ref": "#/$defs/trainer"}


VERL_CHECKS = {
    "verl/trainer/config/ppo_trainer.yaml": """
        actor_rollout_ref:
          actor: {_target_: verl.workers.config.Actor, mode: a, style: null, size: 1, kl_loss_type: kl, strategy: fsdp}
        algorithm: {adv_estimator: gae, kl_penalty: kl}
        trainer: {nnodes: 1, save_freq: -1}
        data: {truncation: error}
    """,
    "verl/utils/dataset/rl_dataset.py": "def tokenize(self):\n    postprocess(truncation=self.truncation)\n",
    "verl/utils/torch_functional.py": """
        def postprocess(truncation):
            assert truncation in ["left", "error"]
    """,
    "verl/workers/config.py": """
        from dataclasses import dataclass
        class Base:
            def __post_init__(self):
                assert self.style in ["x", "y"]
        @dataclass
        class Actor(Base):
            mode: str = "a"
            style: str = None
            size: int = 1
            def __post_init__(self):
                valid = ["a", "b"]
                if self.mode not in valid:
                    raise ValueError(self.mode)
                if self.style is not None:
                    assert self.style in ("x", "y", "z")
                if self.mode == "a":
                    assert self.size in (1, 2)
                super().__post_init__()
    """,
    "verl/trainer/main_ppo.py": """
        def run(config):
            actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
            pool = [config.trainer.n_gpus_per_node] * config.trainer.nnodes
            if config.actor_rollout_ref.actor.strategy in {"fsdp", "fsdp2"}:
                return 1
            elif config.actor_rollout_ref.actor.strategy == "megatron" or self.actor.strategy == "x":
                return 2
            elif config.actor_rollout_ref.actor.strategy == "gone":
                raise NotImplementedError("gone")
            else:
                raise NotImplementedError
        run(None)
    """,
    "verl/trainer/ppo/core_algos.py": """
        from enum import Enum
        class Estimator(str, Enum):
            GAE = "gae"
        @register_adv_est(Estimator.GAE)
        def gae(): ...
        @register_adv_est("grpo")
        def grpo(): ...
        def kl_penalty(left, right, kl_penalty):
            if kl_penalty in ("kl", "k1"):
                return left
            if kl_penalty == "full":
                raise NotImplementedError
            raise NotImplementedError
    """,
}


def test_verl_checks_are_read_from_branches_registries_and_dataclasses() -> None:
    files = {path: textwrap.dedent(text).lstrip("\n") for path, text in VERL_CHECKS.items()}
    table = verl.read("verl", Source(SourceTree("verl", "1.0", files)))
    actor = table.definitions["actor_rollout_ref.actor"].keys
    trained = {"=trainer.val_only": "off"}
    assert actor["mode"].schema["enum"] == ["a", "b"]
    assert actor["style"].schema["enum"] == ["x", "y", "z", None]
    assert "enum" not in actor["size"].schema  # the mode decides
    assert actor["kl_loss_type"].schema["enum"] == ["kl", "k1"]
    assert actor["kl_loss_type"].schema["x-checked-if"]["=actor_rollout_ref.actor.use_kl_loss"] == "true"
    assert actor["strategy"].schema["enum"] == ["fsdp", "fsdp2", "megatron", "x"]
    estimator = table.definitions["algorithm"].keys["adv_estimator"].schema
    assert estimator["enum"] == ["gae", "grpo"]
    assert estimator["x-registry"] is True
    trainer = table.definitions["trainer"].keys
    assert trainer["nnodes"].schema == {"default": 1, "type": "integer", "x-checked-if": trained}
    assert trainer["save_freq"].schema == {"type": "integer", "default": -1, "x-unchecked": True}


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("verl/trainer/ppo/core_algos.py", "    raise NotImplementedError\n", "    return right\n"),  # any word
        ("verl/trainer/ppo/core_algos.py", '("kl", "k1")', "find_words()"),
        ("verl/trainer/ppo/core_algos.py", '"grpo"', "find_name()"),
        (
            "verl/trainer/main_ppo.py",
            "else:\n        raise NotImplementedError",
            "else:\n        return 3\n    raise OSError",
        ),
        ("verl/trainer/main_ppo.py", '== "gone"', ".startswith('own')"),
        (
            "verl/trainer/ppo/core_algos.py",
            '    if kl_penalty == "full"',
            "    if is_own(): return 1\n    if kl_penalty == 'f'",
        ),
        (
            "verl/trainer/ppo/core_algos.py",
            '    if kl_penalty == "full"',
            "    for word in WORDS:\n        if kl_penalty == word: return 1\n    if kl_penalty == 'full'",
        ),
        (
            "verl/trainer/ppo/core_algos.py",
            '    if kl_penalty == "full"',
            "    try: return WORDS[kl_penalty]\n    except KeyError: pass\n    if kl_penalty == 'full'",
        ),
        (
            "verl/trainer/ppo/core_algos.py",
            '    if kl_penalty in ("kl"',
            '    kl_penalty = WORDS.get(kl_penalty, kl_penalty)\n    if kl_penalty in ("kl"',
        ),
        (
            "verl/trainer/main_ppo.py",
            "    if config.actor_rollout_ref",
            "    if is_own(): return 3\n    if config.actor_rollout_ref",
        ),
        ("verl/utils/torch_functional.py", "    assert", "    if is_cut():\n        assert"),
        ("verl/utils/torch_functional.py", "    assert", "    if not is_cut(): return\n    assert"),
        ("verl/workers/config.py", "        valid =", "        if not self.is_on: return\n        valid ="),
        (
            "verl/workers/config.py",
            "        valid =",
            "        self.mode = WORDS.get(self.mode, self.mode)\n        valid =",
        ),
        (
            "verl/workers/config.py",
            "        valid =",
            "        for name in ('mode', 'size'): setattr(self, name, 1)\n        valid =",
        ),
    ],
)
def test_verl_words_of_code_that_refuses_nothing_for_sure_are_not_stated(place: str, old: str, new: str) -> None:
    files = {path: textwrap.dedent(text).lstrip("\n") for path, text in VERL_CHECKS.items()}
    head, found, tail = files[place].rpartition(old)
    assert found
    before = verl.read("verl", Source(SourceTree("verl", "1.0", files)))
    after = verl.read("verl", Source(SourceTree("verl", "1.0", {**files, place: head + new + tail})))

    def list_words(table: ReleaseTable) -> set[tuple[str, str]]:
        return {
            (name, key)
            for name, definition in table.definitions.items()
            for key, fact in definition.keys.items()
            if "enum" in fact.schema
        }

    assert list_words(after) < list_words(before)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"verl/trainer/config/ppo_trainer.yaml": "defaults: [missing, _self_]\n"},
        {"verl/trainer/config/ppo_trainer.yaml": "defaults: [ppo_trainer, _self_]\n"},
        {"verl/trainer/config/ppo_trainer.yaml": "[1]\n"},
        {"verl/trainer/config/ppo_trainer.yaml": "a: [\n"},
    ],
)
def test_verl_trees_that_cannot_be_composed_are_undecided(files: dict[str, str]) -> None:
    with pytest.raises(UndecidedError):
        verl.read("verl", Source(SourceTree("verl", "1.0", files)))
