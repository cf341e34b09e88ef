"""Install commands: pins in scripts, Makefiles, justfiles, YAML jobs, READMEs, notebooks and Modal images.

YAML jobs are cloud jobs, compose files and GitHub workflows. These pins count if no requirement file mentions the
framework; scripts also override a requirement file that names another release. A script may install for a purpose other
than training, so it counts only if it installs the framework; then all its pins count. A test workflow counts only if
it starts training or has "train" in its file name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.roots import measure_distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.repository.files import RECIPES
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.workflows import is_workflow

if TYPE_CHECKING:
    from cfglint_train.releases.pins.readers import Pin
    from cfglint_train.releases.pins.search import ResolvedPin

_MAX_INSTALLATIONS: Final = 1000
"""Maximum number of installations to read from a repository."""
_EXAMPLE_FILES: Final = compile_on_use(
    r"\.(?:md|ipynb)$|/\.(?:github|gitlab|circleci|azure-pipelines)/|/\.gitlab-ci\.ya?ml$"
)
"""Pattern for the paths of files whose commands may serve another purpose (tests) or be outdated."""
_TRAINS: Final = compile_on_use(
    r"\b(?:accelerate\s+launch|torchrun|deepspeed|axolotl\s+train|llamafactory-cli\s+train|trl\s+[a-z]+)\s"
    r"|\b(?:train|finetune|sft|dpo|grpo)\w*\.(?:py|sh)\b"
)
"""Pattern for a command that starts training."""
_IMAGE: Final = compile_on_use(r"""(?m)^([ \t]*(?:- )?)image(?:_id)?:([ \t]+["']?)(?:docker:)?(?=[\w./-]+:)""")
"""Pattern for the image of a compose service, a job or SkyPilot (`image_id: docker:NAME:TAG`)."""


def find_installed_pins(
    index: RepositoryIndex, path: str, package: str, only_run: bool = False
) -> Mapping[str, ResolvedPin]:
    """Return the pins of the commands that install a package for a file, by package.

    Commands in files that name the file take precedence over those in the nearest parent folder. Commands in
    other folders do not count, because they install for another purpose. With `only_run`, READMEs, notebooks and CI
    files do not count.
    """
    pins_by_distance: dict[int, list[Pin]] = {}
    folder = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
    for group in index.compute_once(_list_installations):
        if only_run and _EXAMPLE_FILES.search(group[0].path) is not None:
            continue
        if any(pin.package == package for pin in group):
            levels_up, levels_down = measure_distance(folder, os.path.dirname(group[0].path))
            is_named = index.has_reference(group[0].path, path)
            if is_named or not levels_down:
                pins_by_distance.setdefault(-1 if is_named else levels_up, []).extend(group)
    if not pins_by_distance:
        return {}
    from cfglint_train.releases.pins.search import merge_pins

    return merge_pins(pins_by_distance[min(pins_by_distance)])


def _list_installations(index: RepositoryIndex) -> list[list[Pin]]:
    """Return the pins of each installation in a repository."""
    installations = (
        list(group) for path, text in index.read_texts("installations") for group in _group_pins(path, text)
    )
    return list(islice(filter(None, installations), _MAX_INSTALLATIONS))


def _has_plain_name(path: str) -> bool:
    """Return whether a name is no evidence of a kind of file: it has no extension and is not that of a Makefile."""
    name = os.path.basename(path)
    return "." not in name and name not in RECIPES


def _group_pins(path: str, text: str) -> Iterator[Iterable[Pin]]:
    """Yield the pins of each installation in a file."""
    from cfglint_train.releases.pins.readers import find_command_pins

    if path.endswith(".py"):
        from cfglint_train.releases.pins.modal import find_image_pins

        yield from find_image_pins(path, text)
    elif path.endswith(".ipynb"):
        from cfglint_train.documents.notebooks import parse_notebook

        notebook = parse_notebook(text)
        yield find_command_pins(path, notebook.commands if notebook is not None else "")
    elif not _has_plain_name(path) or text.startswith("#!"):
        plain = text if path.endswith(".md") else re.sub(r"(?m)^\s*#.*$", "", text)
        if is_workflow(path) and "train" not in os.path.basename(path) and not _TRAINS.search(plain):
            return
        if path.endswith((".yaml", ".yml")):
            plain = _IMAGE.sub(r"\1docker run\2", plain)
        yield find_command_pins(path, plain)
