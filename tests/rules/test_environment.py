"""Settings of torch's allocator that KEY007 reports: torch itself must refuse them, and no others."""

from __future__ import annotations

import pytest

from cfglint_rules.vocabulary import environment_variable

ACCEPTED = (
    "expandable_segments:True",
    "max_split_size_mb:20",
    "garbage_collection_threshold:0.8, expandable_segments: False",
    "roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:512",
    "pinned_use_background_threads:True",
    "expandable_segments:True,",
)
REFUSED = (
    "expandable_segments:true",
    "expandable_segments=True",
    "expandable_segments",
    "max_split_size_mb:16",
    "garbage_collection_threshold:1.0",
    "garbage_collection_threshold:0",
)


def _is_reported(text: str) -> bool:
    options = environment_variable._read_table()["allocator"]["options"]
    return bool([*environment_variable._check_allocator(options, text)])


@pytest.mark.parametrize("text", [*ACCEPTED, *REFUSED])
def test_what_is_refused_is_reported(text: str) -> None:
    assert _is_reported(text) is (text in REFUSED)


@pytest.mark.oracle
@pytest.mark.slow
def test_torch_refuses_what_is_reported() -> None:
    torch = pytest.importorskip("torch")
    for text in (*ACCEPTED, *REFUSED):
        try:
            torch._C._accelerator_setAllocatorSettings(text)
        except (ValueError, RuntimeError):
            is_refused = True
        else:
            is_refused = False
        assert is_refused is (text in REFUSED), text
        assert _is_reported(text) is is_refused, text
