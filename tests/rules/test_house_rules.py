"""House rules: valid definitions, checks of keys, flags and fields, and certainty of their findings."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cfglint_train.foundation.errors import UsageError
from cfglint_train.settings.conditions import parse_condition
from tests.support.command import run_cfglint

AXOLOTL = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
learning_rate: 0.0002
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
OPENRLHF = """\
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset x \\
  --micro_train_batch_size 8 --train_batch_size 32 --packing_samples
"""


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    return tmp_path


def lint_with_rule(here: Path, rule: str, *arguments: str) -> list[dict]:
    """Return the findings of one house rule."""
    (here / "cfglint.toml").write_text(f"[[require]]\n{rule}\n")
    outcome = run_cfglint("--select", "HSE", "--output-format", "json", *arguments, cwd=here)
    assert outcome.code in (0, 1), outcome
    return json.loads(outcome.out)["findings"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('key = "learning_rate"\nat-most = 1e-4', "`learning_rate` is 0.0002; a house rule allows at most 0.0001"),
        ('key = "learning_rate"\nat-most = 2e-4', None),
        ('key = "learning_rate"\nat-least = 1e-3', "`learning_rate` is 0.0002; a house rule requires at least 0.001"),
        ('key = "learning_rate"\nat-least = 1e-5\nat-most = 1e-3', None),
        ('key = "bf16"\nequals = true', None),
        ('key = "bf16"\nequals = 1', "`bf16` is true; a house rule requires 1"),
        ('key = "bf16"\none-of = ["auto", true]', None),
        ('key = "bf16"\nabsent = true', "`bf16` is set; a house rule forbids it"),
        ('key = "seed"\nabsent = true', None),
        ('key = "seed"\nequals = 1', None),
        ('key = "seed"\npresent = true', "`seed` is not set; a house rule requires it"),
        ('key = "seed"\npresent = true\nequals = 1', "`seed` is not set; a house rule requires it"),
        ('key = "bf16"\npresent = true\nequals = false', "`bf16` is true; a house rule requires false"),
        ('key = "zero_optimization.stage"\npresent = true', None),
        ('key = "datasets[].type"\none-of = ["alpaca", "chat_template"]', None),
        (
            'key = "datasets[].type"\nequals = "chat_template"',
            "`datasets[0].type` is alpaca; a house rule requires chat_template",
        ),
        ('key = "datasets[].split"\npresent = true', "`datasets[0].split` is not set; a house rule requires it"),
        ('key = "datasets[].path"\nabsent = true', "`datasets[0].path` is set; a house rule forbids it"),
        ('key = "test_datasets[].type"\npresent = true', None),
        ('key = "plugins[]"\nabsent = true', None),
        ('field = "batch.micro"\nequals = 2', None),
        ('field = "batch.micro"\nequals = 4', "`batch.micro` (`micro_batch_size`) is 2; a house rule requires 4"),
        ('field = "checkpoint.keep"\npresent = true', "`checkpoint.keep` is not set; a house rule requires it"),
        ('field = "checkpoint.keep"\nat-most = 4', None),
        ('field = "checkpoint.keep"\none-of = [4, "all"]', None),
        ('field = "checkpoint.keep"\nequals = 2', "`checkpoint.keep` is 4; a house rule requires 2"),
        ('field = "batch.micro"\nabsent = true', "`batch.micro` (`micro_batch_size`) is set; a house rule forbids it"),
        ('field = "batch.global_"\nat-most = 4', "`batch.global` is 64; a house rule allows at most 4"),
        ('field = "rollout.engine"\nequals = "vllm"', None),
        ('key = "bf16"\nequals = false\nframeworks = ["llama-factory"]', None),
        ('key = "bf16"\nequals = false\npaths = ["other/**"]', None),
        ('key = "bf16"\nequals = false\npaths = ["*.yaml"]', "`bf16` is true; a house rule requires false"),
    ],
)
def test_what_breaks_a_rule(here, rule, message):
    assert [finding["message"] for finding in lint_with_rule(here, rule)] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("batch.global * sequence.length <= 100_000", "131,072 is more than 100,000"),
        ("batch.global * sequence.length <= 131_072", None),
        ("4 <= batch.micro < 8", "4 is more than 2"),
        ("batch.micro % 4 == 0", "2 does not equal 0"),
        ("batch.micro % 4 == 0 or batch.accumulation == 4", None),
        ("batch.micro % 4 == 0 or batch.accumulation == 3", "2 does not equal 0"),
        ("batch.micro == 2 and batch.accumulation > 2 * batch.micro", "4 is not more than 4"),
        ("optimizer.learning_rate / batch.micro != 1e-4", "0.0001 equals 0.0001"),
        ("-batch.micro // 4 >= +1", "-1 is less than 1"),
        # Unknown, undefined and huge values break no rule.
        ("batch.micro * rollout.batch < 0", None),
        ("batch.micro / (batch.micro - 2) < 0", None),
        ("batch.micro ** 9 ** 9 < 0", None),
        ("(1 - batch.micro) ** 0.5 < 0", None),
        ("batch.micro < 1 and rollout.batch < 0", "2 is not less than 1"),
        ("batch.micro < 1 or rollout.batch < 0", None),
    ],
)
def test_a_condition_on_several_fields(here, condition, message):
    (here / "config.yaml").write_text(f"{AXOLOTL}sequence_len: 2048\npad_to_sequence_len: true\n")
    cluster = ("--nodes", "1", "--gpus-per-node", "8")
    findings = lint_with_rule(here, f'that = """{condition}"""\nmessage = "why"\nseverity = "error"', *cluster)
    assert [finding["message"] for finding in findings] == (
        [] if message is None else [f"{message}; a house rule requires `{condition}`: why"]
    )
    assert all(finding["severity"] == "error" for finding in findings)


def test_a_condition_points_at_its_first_field_and_states_the_values(here):
    (finding,) = lint_with_rule(
        here,
        'that = "batch.accumulation\t* batch.micro < batch.global"\npaths = ["*.yaml"]',
        "--nodes=1",
        "--gpus-per-node=1",
    )
    assert (finding["line"], finding["certainty"]) == (5, "followed")
    assert finding["notes"][0] == (
        "`batch.accumulation` (`gradient_accumulation_steps`) is 4, `batch.micro` (`micro_batch_size`) is 2, "
        "`batch.global` is 8"
    )
    assert lint_with_rule(here, 'that = "batch.micro < 2"\npaths = ["other/**"]') == []


def test_a_condition_on_an_assumed_cluster_is_certain_only_if_every_cluster_breaks_it(here):
    rule = 'that = "batch.global < {}"\nseverity = "error"'
    (finding,) = lint_with_rule(here, rule.format(64))
    assert (finding["severity"], finding["certainty"]) == ("warning", "assumed")
    (finding,) = lint_with_rule(here, rule.format(4))
    assert finding["severity"] == "error"


def build_arithmetic(chance: random.Random, depth: int) -> str:
    """Return a random arithmetic expression on `batch.micro` and `batch.global`."""
    if depth == 0:
        return chance.choice(("batch.micro", "batch.global", "3", "1_000", "0.5", "2e3", "0"))
    left, right = build_arithmetic(chance, depth - 1), build_arithmetic(chance, chance.randrange(depth))
    return chance.choice((f"{left} {chance.choice(['+', '-', '*', '/', '//', '%'])} {right}", f"({left})", f"-{left}"))


def test_arithmetic_is_that_of_python():
    chance, seen = random.Random(5), set()
    for _ in range(3000):
        sides = [build_arithmetic(chance, chance.randrange(1, 4)) for _ in range(chance.randrange(2, 4))]
        text = f" {chance.choice(['<', '<=', '>', '>=', '==', '!='])} ".join(sides)
        if "batch." not in text:
            continue
        values = {"batch.micro": chance.randrange(9), "batch.global_": chance.choice((0, 1, 7, 64, 4096))}
        python = text.replace("batch.micro", str(values["batch.micro"])).replace(
            "batch.global", str(values["batch.global_"])
        )
        try:
            expected = eval(python)
        except ZeroDivisionError:
            expected = None
        try:
            failures = parse_condition(text).list_failures(values.get)
        except UsageError:  # a division by a constant zero
            assert expected is None or len(sides) == 3, text
            continue
        if expected is not None or len(sides) == 2:  # an undefined comparison of a chain leaves the others to judge
            assert bool(failures) is (expected is False), (text, values)
        seen.add(expected)
    assert seen == {True, False, None}


def test_items_of_lists_are_asked_and_fixed_one_by_one(here):
    two_items = AXOLOTL.replace("type: alpaca}]", "type: alpaca}, {path: b.jsonl}]\nplugins: [a.b, c.d]")
    (here / "config.yaml").write_text(two_items)
    messages = {finding["message"] for finding in lint_with_rule(here, 'key = "plugins[]"\none-of = ["a.b"]')}
    assert messages == {"`plugins[1]` is c.d; a house rule requires one of a.b"}
    (here / "cfglint.toml").write_text(
        '[[require]]\nkey = "datasets[].type"\nequals = "chat_template"\npresent = true\n'
    )
    assert run_cfglint("--select", "HSE", "--fix", "--unsafe-fixes", cwd=here).code == 0
    fixed = (here / "config.yaml").read_text()
    assert "{path: data/train.jsonl, type: chat_template}, {path: b.jsonl, type: chat_template}" in fixed


@pytest.mark.parametrize(
    "key", ["micro_train_batch_size", "--micro_train_batch_size", "micro-train-batch-size", "--train.micro_batch_size"]
)
def test_flags_by_any_spelling(here, key):
    (here / "run.sh").write_text(OPENRLHF)
    (finding,) = lint_with_rule(here, f'key = "{key}"\nat-most = 4', "run.sh")
    assert finding["message"] == "`--micro_train_batch_size` is 8; a house rule allows at most 4"
    assert (finding["line"], finding["column"]) == (2, 3)
    assert finding["fix"]["applicability"] == "unsafe"


def test_what_a_script_fills_in_is_unknown(here):
    (here / "run.sh").write_text(OPENRLHF.replace("size 8", "size ${MICRO}").replace("--packing", "$MORE --packing"))
    assert lint_with_rule(here, 'key = "--micro_train_batch_size"\nat-most = 4', "run.sh") == []
    assert lint_with_rule(here, 'key = "--seed"\npresent = true', "run.sh") == []


def test_a_derived_value_on_an_assumed_cluster_is_a_warning_that_names_it(here):
    rule = 'field = "batch.global_"\n{}\nseverity = "error"'
    (pinned,) = lint_with_rule(here, rule.format("equals = 128"))
    assert (pinned["severity"], pinned["certainty"]) == ("warning", "assumed")
    assert "assumes 8 GPUs per node; set `gpus-per-node` to be sure" in pinned["notes"]
    # The batch size is 64 with 8 GPUs, and between 8 and 128 with other numbers.
    (capped,) = lint_with_rule(here, rule.format("at-most = 32"))
    assert (capped["severity"], capped["certainty"]) == ("warning", "assumed")
    (beyond,) = lint_with_rule(here, rule.format("at-most = 4"))
    assert beyond["severity"] == "error"
    (exact,) = lint_with_rule(here, rule.format("equals = 128"), "--nodes", "1", "--gpus-per-node", "8")
    assert (exact["severity"], exact["certainty"]) == ("error", "followed")


def test_a_fix_writes_the_value_and_nothing_where_rules_disagree(here):
    (here / "cfglint.toml").write_text('[[require]]\nkey = "learning_rate"\nat-most = 1e-4\n')
    assert run_cfglint("--select", "HSE", "--fix", cwd=here).code == 1
    assert (here / "config.yaml").read_text() == AXOLOTL
    assert run_cfglint("--select", "HSE", "--fix", "--unsafe-fixes", cwd=here).code == 0
    assert (here / "config.yaml").read_text() == AXOLOTL.replace("0.0002", "0.0001")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            'key = "micro_batch_size"\nequals = 1\npaths = ["*.yaml"]',
            'key = "micro_batch_size"\nequals = 4\npaths = ["c*"]',
        ),
        ('key = "micro_batch_size"\nat-most = 1', 'field = "batch.micro"\nat-least = 4'),
        ('key = "micro_batch_size"\nabsent = true', 'field = "batch.micro"\npresent = true\nequals = 4'),
        (
            'key = "datasets[].type"\nequals = "a"\npaths = ["*.yaml"]',
            'key = "datasets[].type"\nequals = "b"\npaths = ["c*"]',
        ),
    ],
)
def test_nothing_is_written_where_rules_disagree(here, first, second):
    (here / "cfglint.toml").write_text(f"[[require]]\n{first}\n[[require]]\n{second}\n")
    outcome = run_cfglint("--select", "HSE", "--fix", "--unsafe-fixes", cwd=here)
    assert outcome.code == 1
    assert "please report it" not in outcome.out + outcome.err
    assert "no fix: `require[" in outcome.out
    assert (here / "config.yaml").read_text() == AXOLOTL


CONTRADICTIONS = [
    ("equals = 1", "equals = 4"),
    ("equals = 1", "one-of = [2, 4]"),
    ("at-most = 2", "at-least = 3"),
    ("one-of = [1, 2]", "at-least = 3"),
    ("present = true", "absent = true"),
    ('equals = 1\nframeworks = ["axolotl", "trl"]', 'equals = 2\nframeworks = ["axolotl"]\npaths = ["a"]'),
]
HARMONIES = [
    ("equals = 1", "one-of = [1, 2]"),
    ("at-most = 2", "at-least = 2"),
    ("equals = 1", "absent = true"),
    ('equals = 1\npaths = ["a"]', 'equals = 2\npaths = ["b"]'),
    ('equals = 1\nframeworks = ["axolotl"]', 'equals = 2\nframeworks = ["trl"]'),
]


@pytest.mark.parametrize(("first", "second"), [*CONTRADICTIONS, *HARMONIES])
def test_rules_that_no_value_meets_are_refused_at_the_second(here, first, second):
    first, second = f'key = "gradient-accumulation-steps"\n{first}', f'key = "gradient_accumulation_steps"\n{second}'
    (here / "base.toml").write_text(f"[[require]]\n{first}\n")
    for start, conflicting in (
        (f"[[require]]\n{first}\n", "`require[0]`"),
        ('extend = "base.toml"\n', "`require[0]` of base.toml"),
    ):
        (here / "cfglint.toml").write_text(f"{start}[[require]]\n{second}\n")
        outcome = run_cfglint("--select", "HSE", cwd=here)
        number, line = (1, start.count("\n") + 1) if start.startswith("[") else (0, 2)
        if (first.split("\n", 1)[1], second.split("\n", 1)[1]) in HARMONIES:
            assert outcome.code in (0, 1), outcome
        else:
            assert outcome.code == 2
            place = f"cfglint.toml:{line}:3: require[{number}] contradicts {conflicting}: no value satisfies both"
            assert outcome.err.startswith(f"cfglint: {place}"), outcome.err


def test_extended_rules_are_added_and_named_where_they_stand(here):
    (here / "base.toml").write_text('[[require]]\nkey = "bf16"\nequals = false\nmessage = "the old cards have none"\n')
    (here / "cfglint.toml").write_text('extend = "base.toml"\n[[require]]\nkey = "seed"\npresent = true\n')
    lines = run_cfglint("--select", "HSE", cwd=here).lines
    assert any("a house rule requires false: the old cards have none" in line for line in lines)
    assert "   = note: the rule is `require[0]` in base.toml" in lines
    assert "   = note: the rule is `require[0]` in cfglint.toml" in lines
    shown_rules = json.loads(run_cfglint("--show-settings", "--output-format", "json", "config.yaml", cwd=here).out)[0][
        "require"
    ]
    assert [rule["key"] for rule in shown_rules] == ["bf16", "seed"]


def test_a_comment_and_the_severity_of_the_settings_count(here):
    (here / "config.yaml").write_text(AXOLOTL.replace("bf16: true", "bf16: true  # cfglint: ignore[HSE001]"))
    assert lint_with_rule(here, 'key = "bf16"\nequals = false') == []
    (here / "config.yaml").write_text(AXOLOTL)
    (finding,) = lint_with_rule(here, 'key = "bf16"\nequals = false\n[severity]\nHSE = "info"')
    assert finding["severity"] == "info"


WRONG = [
    ('key = "plugins[].x"\nabsent = true', "2:1", "require[0].key is not a key of any framework: 'plugins[].x'"),
    (
        'key = "seeed"\npresent = true',
        "2:1",
        "require[0].key is not a key of any framework: 'seeed'; did you mean seed?",
    ),
    ('key = "adapters[0].x"\nabsent = true', "2:1", "require[0].key is not a key of any framework: 'adapters[0].x'"),
    (
        'key = "seed"\nframeworks = ["olmo_core"]\nequal = 3',
        "4:1",
        "unknown setting require[0].equal; did you mean equals?",
    ),
    (
        'key = "seed"',
        "1:3",
        "require[0] requires nothing; add one of equals, one-of, at-most, at-least, present, absent",
    ),
    ('key = "seed"\nfield = "batch.micro"\nabsent = true', "1:3", "require[0] needs either `field`"),
    ("present = true", "1:3", "require[0] needs either `field`"),
    ('that = "batch.micro < 3"\nat-most = 3', "3:1", "require[0].at-most cannot be combined with `that`"),
    ('that = "batch.micro < 3"\nkey = "seed"', "3:1", "require[0].key cannot be combined with `that`"),
    ('that = ["batch.micro < 3"]', "2:1", "require[0].that must be text, not ['batch.micro < 3']"),
    (
        'that = "batch.globl < 3"',
        "2:1",
        "require[0].that is invalid: unknown plan field batch.globl; did you mean batch.global",
    ),
    ('that = "batch.micro ≤ 3"', "2:1", "require[0].that cannot be read at `≤ 3`; use numbers, plan fields, + - *"),
    ('that = "batch.micro < len(3)"', "2:1", "require[0].that cannot contain `len(3)`; use numbers"),
    ('that = "batch.micro < True"', "2:1", "require[0].that cannot contain `True`; use numbers"),
    ('that = "(batch.micro < 3) < 4"', "2:1", "require[0].that cannot contain `batch.micro < 3`; use numbers"),
    ('that = "batch.micro + 3"', "2:1", "require[0].that must be a comparison; `batch.micro + 3` compares nothing"),
    ('that = "not batch.micro < 3"', "2:1", "require[0].that must be a comparison; `not batch.micro < 3` compares"),
    ('that = "precision.compute < 3"', "2:1", "require[0].that compares numbers, but precision.compute is not a"),
    ('that = "3 < 4"', "2:1", "require[0].that names no plan field, so it is the same for every run"),
    ('that = "batch.micro / (2 - 2) < 3"', "2:1", "require[0].that cannot be computed at `batch.micro / (2 - 2)`"),
    ('that = "batch.micro < 3 + 0 ** -1"', "2:1", "require[0].that cannot be computed at `0 ** -1`, whatever"),
    (f'that = "batch.micro < {"-" * 60}3"', "2:1", "require[0].that is nested too deeply"),
    (f'that = "batch.micro < {"(" * 250}3{")" * 250}"', "2:1", "require[0].that is too long: 515 characters"),
    ("key = 3\npresent = true", "2:1", "require[0].key must be text, not 3"),
    (
        'field = "batch.mico"\npresent = true',
        "2:1",
        "require[0].field is invalid: unknown plan field batch.mico; did you",
    ),
    ('field = "batch.micro"\nat-most = "3"', "3:1", "require[0].at-most must be a number, not '3'"),
    (
        'field = "batch.micro"\nequals = "x"',
        "3:1",
        "require[0].equals is invalid: batch.micro must be a whole number, not 'x'",
    ),
    ('field = "batch.micro"\none-of = 3', "3:1", "require[0].one-of must be a list of values, not 3"),
    ('field = "batch.micro"\nequals = [3]', "3:1", "require[0].equals must be a number, text, true or false, not [3]"),
    (
        'field = "precision.compute"\nat-most = 3',
        "3:1",
        "require[0].at-most compares numbers, but precision.compute is not a number",
    ),
    (
        'field = "precision.compute"\nequals = "b16"',
        "3:1",
        "require[0].equals is invalid: precision.compute must be one of bf16,",
    ),
    (
        'field = "method.lora_targets"\nequals = "q"',
        "3:1",
        "require[0].equals compares single values, but method.lora_tar",
    ),
    ('key = "seed"\npresent = false', "3:1", "require[0].present must be true, not False"),
    ('key = "seed"\nabsent = true\nequals = 3', "4:1", "require[0].equals cannot be combined with absent"),
    ('key = "seed"\nat-least = 3\nat-most = 1', "3:1", "require[0].at-least is above at-most (3 > 1)"),
    (
        'key = "seed"\nequals = 1\nframeworks = ["axolot"]',
        "4:1",
        "require[0].frameworks names an unknown framework, 'axolot'; did",
    ),
    (
        'key = "seed"\nequals = 1\nseverity = "fatal"',
        "4:1",
        "require[0].severity must be one of error, warning, info, not",
    ),
    ('key = "seed"\nequals = 1\nmessage = 3', "4:1", "require[0].message must be text, not 3"),
]


@pytest.mark.parametrize(("rule", "place", "problem"), WRONG)
def test_wrong_rules_are_2_with_line_and_column(here, rule, place, problem):
    (here / "cfglint.toml").write_text(f"[[require]]\n{rule}\n")
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 2
    assert outcome.err.startswith(f"cfglint: cfglint.toml:{place}: {problem}"), outcome.err
    assert "^" in outcome.err
