"""Shell scripts that contain no run themselves but start a framework with a configuration file."""

from __future__ import annotations

import os

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import find_framework_of_program, remove_config_word
from cfglint_train.repository.sources import Sources

_CONFIG_SUFFIX: Final = compile_on_use(r"\.(?:ya?ml|json)$")


def describe_started(document: ShellDocument, sources: Sources) -> str:
    """Describe the first nonexistent configuration file that a script starts a framework with, or return ""."""
    for invocation in document.invocations:
        framework = find_framework_of_program(invocation.program)
        words = () if framework is None else invocation.words
        names = (word.text for word in words if word.is_known and _CONFIG_SUFFIX.search(word.text))
        file = next(map(remove_config_word, names), None)
        if framework is None or file is None:
            continue
        if sources.find(os.path.join(resolve_working_folder(document, invocation), file), document.path) is None:
            return f"it starts {framework.title} with `{file}`, which was not found"
    return ""
