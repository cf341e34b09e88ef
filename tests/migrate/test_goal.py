"""Values of `--to` and `--from`."""

from __future__ import annotations

import pytest

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.errors import UsageError
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.front.migrate.goal import Goal, parse_goal


def test_packages_by_their_names() -> None:
    target = parse_goal(["openrlhf=0.11.2", "llama-factory==0.9.5", "ai2-olmo=v0.6.0"], ["openrlhf=0.9.5"])
    assert target == Goal({"openrlhf": "0.11.2", "llamafactory": "0.9.5", "olmo": "v0.6.0"}, {"openrlhf": "0.9.5"})
    assert target.frameworks == {"openrlhf", "llamafactory", "llamafactory_v1", "olmo"}


@pytest.mark.parametrize("name", ["accelerate", "axolotl", "deepspeed", "llamafactory", "olmo", "openrlhf"])
def test_a_name_alone_is_its_newest_release(name: str) -> None:
    assert parse_goal([name]).to == {name: frameworks.load(name).default_release}


def test_transformers_is_for_the_frameworks_whose_keys_rest_on_it() -> None:
    target = parse_goal(["transformers"])
    assert target.to == {"transformers": load("transformers").packages["transformers"][-1]}
    assert target.frameworks == {"hf_scripts", "llamafactory", "trl"}
    assert target.find_package("llamafactory") == "transformers"
    assert parse_goal(["transformers=5.6.0", "llamafactory=0.9.5"]).find_package("llamafactory") == "llamafactory"


@pytest.mark.parametrize(
    ("to", "start", "problem"),
    [
        (["torch=2.8"], [], "--to torch=2.8: expected NAME=RELEASE; known: accelerate"),
        (["megatron"], [], "--to megatron: expected NAME=RELEASE"),
        (["axolotl=new"], [], "--to axolotl=new: axolotl=new is not a release"),
        (["axolotl="], [], "--to axolotl=: axolotl= is not a release"),
        (["axolotl"], ["axolotl"], "--from axolotl: axolotl= is not a release"),
        (["axolotl"], ["openrlhf=0.9.0"], "--from openrlhf needs --to openrlhf=RELEASE"),
    ],
)
def test_goals_that_mean_nothing(to: list[str], start: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match="^" + problem.replace("(", r"\(")):
        parse_goal(to, start)
