"""Keys that fixes write exist in the run's release: a law for the lenses of each framework, at old and new releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cfglint_rules.vocabulary.survey import list_key_occurrences
from cfglint_train.documents.document import CannotEdit, apply_edits
from cfglint_train.findings.draft import list_document_changes, write_fix
from cfglint_train.findings.finding import Fix
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.key_availability import explain_unavailable
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import list_frameworks
from tests.frameworks.test_read_only import collect_samples, list_changes, list_reasons
from tests.support.laws import find_lens, write_fields
from tests.support.linting import list_runs

RELEASES = 6
"""Releases of each framework, spread evenly over all known ones."""
SAMPLES = 8
"""Configurations of each framework."""
LACKING = ("not yet", "removed", "renamed")
VALUES = 3
"""New values of a field."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Config]]:
    """Return configurations by framework, without those whose launches override settings."""
    configs_by_framework = collect_samples(tmp_path_factory.mktemp("more"))
    return {
        name: [config for config in configs if not config.overrides][:SAMPLES]
        for name, configs in configs_by_framework.items()
    }


def pick_releases(releases: tuple[str, ...]) -> Iterator[str]:
    yield from dict.fromkeys(releases[number * (len(releases) - 1) // (RELEASES - 1)] for number in range(RELEASES))


def find_unavailable_keys(before: Config, after: Config) -> set[str]:
    """Return the new keys that the release does not have."""
    lacking = {use.name for use in list_key_occurrences(after) if use.status is None or use.status.kind in LACKING}
    return lacking - {use.name for use in list_key_occurrences(before)}


@pytest.mark.slow
@pytest.mark.parametrize("name", list_frameworks())
def test_no_lens_writes_a_key_that_the_release_lacks(name, samples):
    framework = frameworks.load(name)
    if framework.keys is None:
        pytest.skip("it has no vocabulary")
    attempts = refusals = 0
    for release in pick_releases(framework.keys.vocabulary.releases):
        for config in samples[name]:
            config_at_release = config.replace_release(framework.manifest.package, release)
            config_at_release.evidence = config_at_release.evidence._replace(
                vocabulary=None
            )  # fixtures contain copies of OLMo
            for field in {field for lens in framework.lenses for field in lens.fields} - list_reasons(name).keys():
                lens = find_lens(config_at_release, field)
                for change in list(list_changes(config_at_release, lens, field, []))[:VALUES]:
                    try:
                        keys = lens.write(config_at_release, change)
                        after = write_fields(config_at_release, change)
                    except CannotEdit:
                        continue
                    attempts += 1
                    if any(explain_unavailable(config_at_release, key) for key in keys):
                        refusals += 1
                    else:
                        assert find_unavailable_keys(config_at_release, after) == set(), (
                            release,
                            config.document.path,
                            change,
                        )
    assert attempts > refusals


RECIPE = """\
# cfglint: trl={}
model_name_or_path: meta-llama/Llama-3.1-8B
dataset_name: acme/samples
packing: true
bf16: true
learning_rate: 1.0e-5
{}"""
SCRIPT = """\
# cfglint: trl={}
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out"{})
SFTTrainer(model="meta-llama/Llama-3.1-8B", args=args, train_dataset=samples).train()
"""


@pytest.mark.parametrize(
    ("release", "stated", "key"),
    [
        ("0.12.2", "", "max_seq_length"),
        ("0.15.2", "", "max_seq_length"),
        ("0.16.1", "", "max_length"),
        ("1.16.0", "", "max_length"),
        ("0.19.1", "max_seq_length", "max_seq_length"),
        ("1.16.0", "max_seq_length", None),
        ("0.12.2", "max_length", None),
    ],
)
@pytest.mark.parametrize(("name", "text"), [("run.yaml", RECIPE), ("run.py", SCRIPT)])
def test_the_length_is_written_as_the_release_spells_it_or_not_at_all(tmp_path, name, text, release, stated, key):
    length_line = (", {}=8192" if name == "run.py" else "{}: 8192\n").format(stated) if stated else ""
    (tmp_path / name).write_text(text.format(release, length_line))
    [run] = list_runs(tmp_path)
    changes = {"sequence.length": 512}
    if key is None:
        with pytest.raises(CannotEdit, match=f"^TRL {release} has no `{stated}`$"):
            list_document_changes(run, changes)
    else:
        assert [change.route[-1] for _, made in list_document_changes(run, changes) for change in made] == [key]


LOADED = """\
# cfglint: trl={}
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
SFTTrainer(model=model, args=SFTConfig(output_dir="out"), train_dataset=samples).train()
"""
ARGUMENTS = """\
# cfglint: trl={}
from transformers import TrainingArguments
from trl import SFTTrainer

args = TrainingArguments(output_dir="out")
SFTTrainer(model="meta-llama/Llama-3.1-8B", args=args, train_dataset=samples).train()
"""


def edit_main(run, changes):
    [(document, edits)] = write_fix(run, Fix("safe", "a fix", changes)).edits
    return apply_edits(document.source, edits).decode()


@pytest.mark.parametrize("release", ["0.12.2", "0.22.0", "0.24.0", "1.16.0"])
def test_the_format_of_a_loaded_model_goes_to_the_call_that_loads_it(tmp_path, release):
    (tmp_path / "run.py").write_text(LOADED.format(release))
    [run] = list_runs(tmp_path)
    text = edit_main(run, {"model.dtype": "bf16"})
    assert 'from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")' in text
    assert 'args=SFTConfig(output_dir="out")' in text


@pytest.mark.parametrize("release", ["0.9.6", "0.22.0", "1.16.0"])
def test_a_call_is_given_no_argument_that_its_class_does_not_have(tmp_path, release):
    (tmp_path / "run.py").write_text(ARGUMENTS.format(release))
    [run] = list_runs(tmp_path)
    with pytest.raises(CannotEdit, match=r"^`TrainingArguments` of transformers \S+ has no `model_init_kwargs`$"):
        list_document_changes(run, {"model.dtype": "bf16"})
    assert "gradient_checkpointing=True" in edit_main(run, {"activations.checkpointing": "full"})


@pytest.mark.parametrize(("release", "key"), [("0.9.6", "torch_dtype"), ("0.22.0", "torch_dtype"), ("0.23.0", "dtype")])
def test_the_format_of_a_model_that_the_trainer_loads_is_spelled_as_the_release_does(tmp_path, release, key):
    (tmp_path / "run.py").write_text(SCRIPT.format(release, ""))
    [run] = list_runs(tmp_path)
    assert f'model_init_kwargs={{"{key}": "bfloat16"}}' in edit_main(run, {"model.dtype": "bf16"})
