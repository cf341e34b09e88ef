"""What `--to` and `--from` may say."""

from __future__ import annotations

import pytest

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.errors import UsageError
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.front.migrate.goal import Goal, goal


def test_packages_by_their_names() -> None:
    found = goal(["openrlhf=0.11.2", "llama-factory==0.9.5", "ai2-olmo=v0.6.0"], ["openrlhf=0.9.5"])
    assert found == Goal({"openrlhf": "0.11.2", "llamafactory": "0.9.5", "olmo": "v0.6.0"}, {"openrlhf": "0.9.5"})
    assert found.frameworks == {"openrlhf", "llamafactory", "llamafactory_v1", "olmo"}


@pytest.mark.parametrize("name", ["accelerate", "axolotl", "deepspeed", "llamafactory", "olmo", "openrlhf"])
def test_a_name_alone_is_its_newest_release(name: str) -> None:
    assert goal([name]).to == {name: frameworks.load(name).newest}


def test_transformers_is_for_the_frameworks_whose_keys_rest_on_it() -> None:
    found = goal(["transformers"])
    assert found.to == {"transformers": load("llamafactory").packages["transformers"][-1]}
    assert found.frameworks == {"hf_scripts", "llamafactory", "trl"}
    assert found.package("llamafactory") == "transformers"
    assert goal(["transformers=5.6.0", "llamafactory=0.9.5"]).package("llamafactory") == "llamafactory"


@pytest.mark.parametrize(
    ("to", "start", "problem"),
    [
        (["torch=2.8"], [], "--to torch=2.8: expected NAME=RELEASE; the names are accelerate"),
        (["megatron"], [], "--to megatron: expected NAME=RELEASE"),
        (["axolotl=new"], [], "--to axolotl=new: axolotl=new is not a release"),
        (["axolotl="], [], "--to axolotl=: axolotl= is not a release"),
        (["axolotl"], ["axolotl"], "--from axolotl: axolotl= is not a release"),
        (["axolotl"], ["openrlhf=0.9.0"], "--from openrlhf: the release to migrate to is not stated"),
    ],
)
def test_goals_that_mean_nothing(to: list[str], start: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match="^" + problem.replace("(", r"\(")):
        goal(to, start)
