"""Interpolation, checked against OmegaConf itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect as dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.frameworks.interpolation import resolve_setting
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, StatedValue
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import Release, Releases

omegaconf = pytest.importorskip("omegaconf")
RELEASES = Releases({"olmo": Release("0.6.0", Origin("user"))})


def build_config(text: str, overrides: dict[Any, Any] | None = None) -> Config:
    launch_overrides = {
        route: Override(value, Origin("user", note="--set")) for route, value in (overrides or {}).items()
    }
    return Config("olmo", YamlDocument("x.yaml", text.encode(), dialect()), RELEASES, overrides=launch_overrides)


def resolve_value(text: str, *route: str | int, defaults: Any = None, overrides: Any = None) -> Any:
    setting = resolve_setting(build_config(text, overrides), route, defaults or {})
    return setting.value if isinstance(setting, StatedValue) else setting


def resolve_with_omegaconf(text: str, *route: str | int, overrides: list[str] | None = None) -> Any:
    """Return the value that OmegaConf resolves, or UNRESOLVED if it raises."""
    try:
        loaded = omegaconf.OmegaConf.create(text)
        if overrides:
            loaded = omegaconf.OmegaConf.merge(loaded, omegaconf.OmegaConf.from_dotlist(overrides))
        for step in route:
            loaded = loaded[step]
    except omegaconf.errors.OmegaConfBaseException:
        return UNRESOLVED
    if omegaconf.OmegaConf.is_config(loaded):
        return omegaconf.OmegaConf.to_container(loaded, resolve=True)
    return loaded


TEXTS = (
    "a: ${b}\nb: 4",
    "a: ${ b }\nb: 4",
    "a: '${b}'\nb: ${c}\nc: 1e-6",
    "a: x-${b}-${c}\nb: 4\nc: true",
    "a: ${b.c}\nb: {c: [1, 2]}",
    "a: ${b.c[1]}\nb: {c: [1, 2]}",
    "a: ${b[c]}\nb: {c: q}",
    "a: ${b.c.0}\nb: {c: [7]}",
    "a: ${${b}}\nb: c\nc: deep",
    "a: ${x.${b}.y}\nb: k\nx: {k: {y: 3}}",
    "a: ${missing}",
    "a: ${a}",
    "a: ${b}\nb: ${a}",
    "a: ${oc.env:CFGLINT_NO_SUCH_VARIABLE}",
    r"a: \${b}",
    r"a: \\${b}" + "\nb: 1",
    r"a: 'x\\\${b}'",
    "a: ${b\nb: 1",
    "a: $b\nb: 1",
    "a: '}${b}{'\nb: 1",
    "a: ${b} \nb: null",
    "a: v${b}\nb: null",
    "a: ${b}\nb: false",
    "a: ${..b}\nb: 1",
)


class TestInterpolation:
    @pytest.mark.parametrize("text", TEXTS)
    def test_agrees_with_omegaconf(self, text: str) -> None:
        assert resolve_value(text, "a") == resolve_with_omegaconf(text, "a")

    @pytest.mark.parametrize(
        ("text", "route"),
        [
            ("m: {a: '${.b}', b: 3}", ("m", "a")),
            ("m: {n: {a: '${..b}'}, b: 3}", ("m", "n", "a")),
            ("m: {n: {a: '${...b}'}}\nb: 3", ("m", "n", "a")),
            ("m: {a: '${b}'}\nb: 9", ("m", "a")),
            ("l: ['${b}', '${.0}']\nb: 9", ("l", 1)),
        ],
    )
    def test_relative_paths(self, text: str, route: tuple[str | int, ...]) -> None:
        assert resolve_value(text, *route) == resolve_with_omegaconf(text, *route)

    def test_a_section_that_is_interpolated(self) -> None:
        text = "fsdp: ${sharding}\nsharding: {precision: mixed}"
        assert resolve_value(text, "fsdp", "precision") == "mixed" == resolve_with_omegaconf(text, "fsdp", "precision")
        assert resolve_value(text, "fsdp", "other") is NOT_STATED

    def test_resolvers_stay_unknown(self) -> None:
        for call in ("oc.env:HOME", "oc.env:X,4", "path.choose:/a,/b", "path.glob:'/a/*'", "oc.decode:${oc.env:X}"):
            assert resolve_value(f'a: "${{{call}}}"', "a") is UNRESOLVED

    def test_an_absent_target_has_its_default(self) -> None:
        assert resolve_value("a: ${b.c}", "a", defaults={("b", "c"): 16}) == 16

    def test_overrides_come_first(self) -> None:
        text = "a: ${b}\nb: 4\nm: {n: 1, o: 2}"
        assert (
            resolve_value(text, "a", overrides={("b",): 9}) == 9 == resolve_with_omegaconf(text, "a", overrides=["b=9"])
        )
        assert resolve_value(text, "m", overrides={("m", "n"): 5}) == {"n": 5, "o": 2}
        assert resolve_value(text, "m", "o", overrides={("m",): None}) is UNRESOLVED

    def test_no_null_is_a_section(self) -> None:
        assert resolve_value("wandb: null", "wandb", "log_interval") is UNRESOLVED

    def test_depth_is_bounded(self) -> None:
        chain = "\n".join(f"k{i}: ${{k{i + 1}}}" for i in range(500)) + "\nk500: 1"
        assert resolve_value(chain, "k0") is UNRESOLVED
        nested = "a: " + "${" * 300 + "b" + "}" * 300 + "\nb: b"
        assert resolve_value(nested, "a") in (UNRESOLVED, "b")

    @given(
        st.text(alphabet="ab.${}\\[]: 1x-", max_size=14),
        st.sampled_from(["1", "x", "true", "null", "1e-4", "b", "[1, 2]", "{a: 1}"]),
    )
    def test_never_raises_and_never_disagrees(self, text: str, target: str) -> None:
        source = f"b: {target}\n"
        import yaml

        source = yaml.safe_dump({"a": text}) + source
        ours, theirs = resolve_value(source, "a"), resolve_with_omegaconf(source, "a")
        if ours is not UNRESOLVED and theirs is not UNRESOLVED and not isinstance(theirs, (dict, list)):
            assert ours == theirs
        if "${" not in text:
            assert ours == text


def test_an_override_around_a_setting_settles_it() -> None:
    parsed = build_config("m: {n: 1}", {("m",): {"o": 2}})
    assert parsed.get_value("m", "n") is MISSING
    assert parsed.get_value("m", "o") == 2
    assert parsed.find_override(("m", "o")) == ("m",)


def test_a_text_with_an_unknown_part_is_unresolved() -> None:
    text, unknown = "a: runs/${b}\nb: x\nc: ${b}", Unknown("$lr")
    assert resolve_value(text, "a", overrides={("b",): unknown}) is UNRESOLVED
    assert resolve_value(text, "c", overrides={("b",): unknown}) is unknown
