"""Requirements in every notation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Reference

from cfglint_train.releases.pins import requirement
from cfglint_train.releases.pins.requirement import (
    PACKAGES,
    can_install_on_linux,
    parse_address,
    parse_conda_requirement,
    parse_path_requirement,
    parse_pip_requirement,
    parse_poetry_requirement,
)
from tests.support.cases import for_each


def format_requirement(parsed: requirement.Requirement | None) -> str | None:
    if parsed is None:
        return None
    return f"{parsed.package} from {parsed.fork}" if parsed.fork else f"{parsed.package}{parsed.constraint}"


@for_each(
    ("text", "expected"),
    [
        ("torch==2.6.0", "torch==2.6.0"),
        ("torch == 2.6.0+cu124", "torch==2.6.0"),
        ("Transformers>=4.45,<4.53", "transformers>=4.45,<4.53"),
        ("transformers >=4.45, !=4.47.0 , <=4.52.4", "transformers>=4.45,!=4.47.0,<=4.52.4"),
        ("axolotl[flash-attn,deepspeed]~=0.12.1", "axolotl~=0.12.1"),
        ("liger_kernel (>=0.5)", "liger-kernel>=0.5"),
        ("ai2-olmo-core==2.*", "olmo_core==2.*"),
        ("ai2.olmo==0.6.0", "olmo==0.6.0"),
        ('deepspeed==0.16.4; sys_platform == "linux"', "deepspeed==0.16.4"),
        ('deepspeed==0.16.4; sys_platform == "darwin"', None),
        ('deepspeed==0.16.4; sys_platform != "win32" and python_version >= "3.10"', "deepspeed==0.16.4"),
        ('vllm==0.8.3 ; platform_system == "Darwin" or platform_machine == "aarch64"', "vllm==0.8.3"),
        ("torch", None),
        ("torchvision==0.21.0", None),
        ("torch=2.6", None),
        ("torch ~= 2", None),
        ("axolotl @ git+https://github.com/axolotl-ai-cloud/axolotl.git@v0.12.2", "axolotl==0.12.2"),
        ("axolotl @ git+https://github.com/OpenRLHF/openrlhf@x", "axolotl from github.com/OpenRLHF/openrlhf@x"),
        ("axolotl @ git+https://x:token@github.com/lab/ax.git@4f1d2c3", "axolotl from github.com/lab/ax@4f1d2c3"),
        ("axolotl @ git+ssh://git@gitlab.lab.org/ml/ax.git#subdirectory=src", "axolotl from gitlab.lab.org/ml/ax"),
        ("torch @ https://x.org/whl/cu124/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", "torch==2.6.0"),
        ("torch @ https://example.org/other-2.6.0-py3-none-any.whl", None),
        ("-e .", None),
        ("", None),
        ("torch" + " " * 5000 + "==2", None),
    ],
)  # fmt: skip
def test_pip(text: str, expected: str | None) -> None:
    assert format_requirement(parse_pip_requirement(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://x.org/whl/deepspeed-0.12.6+cu118-cp310-cp310-linux_x86_64.whl", "deepspeed==0.12.6"),
        ("https://x.org/whl/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", "torch==2.6.0"),
        ("https://x.org/vllm-0.8.5.tar.gz", "vllm==0.8.5"),
        ("https://x.org/other-2.6.0-py3-none-any.whl", None),
        ("git+https://github.com/lvwerra/trl@v0.4.7", "trl==0.4.7"),
        ("git+https://github.com/garden/trl@v0.4.7", "trl from github.com/garden/trl@v0.4.7"),
    ],
)
def test_address(text: str, expected: str | None) -> None:
    assert format_requirement(parse_address(text)) == expected


def test_wheel_on_disk() -> None:
    assert (
        format_requirement(parse_path_requirement("./wheels/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl"))
        == "torch==2.6.0"
    )


@for_each(
    ("name", "text", "expected"),
    [
        ("torch", "^2.4", "torch>=2.4,<3"),
        ("torch", "^2.4.1", "torch>=2.4.1,<3"),
        ("axolotl", "^0.12.1", "axolotl>=0.12.1,<0.13"),
        ("axolotl", "^0.0.3", "axolotl>=0.0.3,<0.0.4"),
        ("vllm", "^0", "vllm>=0,<1"),
        ("transformers", "~4.45.1", "transformers>=4.45.1,<4.46"),
        ("transformers", "~4", "transformers>=4,<5"),
        ("peft", "0.15.2", "peft==0.15.2"),
        ("peft", "0.15.*", "peft==0.15.*"),
        ("peft", ">=0.14,<0.16", "peft>=0.14,<0.16"),
        ("peft", "*", None),
        ("peft", "^0.14 || ^0.15", None),
        ("numpy", "^2", None),
    ],
)
def test_poetry(name: str, text: str, expected: str | None) -> None:
    assert format_requirement(parse_poetry_requirement(name, text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytorch=2.4", "torch==2.4.*"),
        ("pytorch=2.4.1", "torch==2.4.1"),
        ("pytorch==2.4", "torch==2.4"),
        ("pytorch 2.4.*", "torch==2.4.*"),
        ("pytorch::pytorch=2.4.1=py3.11_cuda12.4_cudnn9", "torch==2.4.1"),
        ("conda-forge::transformers>=4.45,<4.53", "transformers>=4.45,<4.53"),
        ("pytorch-cuda=12.4", None),
        ("pytorch", None),
        ("python=3.11", None),
    ],
)
def test_conda(text: str, expected: str | None) -> None:
    assert format_requirement(parse_conda_requirement(text)) == expected


@pytest.mark.parametrize(
    ("marker", "held"),
    [
        ("", True),
        ("extra == 'train'", True),
        ("os_name == 'nt'", False),
        ("'linux' == sys_platform", True),
        ("(sys_platform == 'darwin' or sys_platform == 'win32')", False),
        ("sys_platform == 'darwin' or extra == 'x'", True),
        ("platform_machine != 'x86_64' and sys_platform == 'darwin'", False),
    ],
)
def test_markers_leave_out_what_linux_never_installs(marker: str, held: bool) -> None:
    assert can_install_on_linux(marker) is held


@settings(max_examples=500)
@given(
    st.sampled_from(sorted(PACKAGES)),
    st.lists(
        st.tuples(
            st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~=", "==="]),
            st.sampled_from(["2", "2.6", "2.6.0", "2.6.*", "4.45.1", "0.12.0rc1", "1.0.post1", "2.6.0+cu124", "v3.1"]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["", " ", "  "]),
)
def test_what_packaging_reads_is_read_alike(name: str, parts: list[tuple[str, str]], space: str) -> None:
    text = name + space + ",".join(f"{operator}{space}{release}" for operator, release in parts)
    parsed = parse_pip_requirement(text)
    try:
        reference = Reference(text)
    except InvalidRequirement:
        return
    if any("===" in operator or "+" in release for operator, release in parts):
        return  # local labels are left out on purpose
    assert parsed is not None
    for release in ("0.12.0", "1.0", "2.6.0", "2.6.1", "3.1", "4.45.1", "4.46"):
        assert parsed.constraint.is_satisfied_by(release) == reference.specifier.contains(release, prereleases=True)
