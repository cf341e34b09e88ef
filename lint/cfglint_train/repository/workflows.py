"""CI workflows: recognize their files by path, because their commands only run tests."""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

_WORKFLOW: Final = re.compile(
    r"/\.(?:github|gitlab|circleci|azure-pipelines|buildkite)/|/\.gitlab-ci\.ya?ml$|/azure-pipelines\.ya?ml$"
)


def is_workflow(path: str) -> bool:
    """Return whether the file at an absolute path is a workflow of a CI service."""
    return _WORKFLOW.search(path) is not None
