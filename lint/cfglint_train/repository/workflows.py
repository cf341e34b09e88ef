"""CI workflows: recognize their files by path, because their commands only run tests."""

from __future__ import annotations

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_WORKFLOW: Final = compile_on_use(
    r"/\.(?:github|gitlab|circleci|azure-pipelines|buildkite)/|/\.gitlab-ci\.ya?ml$|/azure-pipelines\.ya?ml$"
)


def is_workflow(path: str) -> bool:
    """Return whether the file at an absolute path is a workflow of a CI service."""
    return _WORKFLOW.search(path) is not None
