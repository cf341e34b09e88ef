"""Interpolation, checked against OmegaConf itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.documents.document import MISSING
from cfglint_train.documents.yaml.dialects import omegaconf as dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.frameworks.interpolation import look
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.lens_types import NOT_STATED, UNRESOLVED, Stated
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import Release, Releases

omegaconf = pytest.importorskip("omegaconf")
RELEASES = Releases({"olmo": Release("0.6.0", Origin("user"))})


def config(text: str, overrides: dict[Any, Any] | None = None) -> Config:
    laid = {route: Override(value, Origin("user", note="--set")) for route, value in (overrides or {}).items()}
    return Config("olmo", YamlDocument("x.yaml", text.encode(), dialect()), RELEASES, overrides=laid)


def value(text: str, *route: str | int, defaults: Any = None, overrides: Any = None) -> Any:
    found = look(config(text, overrides), route, defaults or {})
    return found.value if isinstance(found, Stated) else found


def truth(text: str, *route: str | int, overrides: list[str] | None = None) -> Any:
    """What OmegaConf itself resolves, UNRESOLVED where it raises."""
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
        assert value(text, "a") == truth(text, "a")

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
        assert value(text, *route) == truth(text, *route)

    def test_a_section_that_is_interpolated(self) -> None:
        text = "fsdp: ${sharding}\nsharding: {precision: mixed}"
        assert value(text, "fsdp", "precision") == "mixed" == truth(text, "fsdp", "precision")
        assert value(text, "fsdp", "other") is NOT_STATED

    def test_resolvers_stay_unknown(self) -> None:
        for call in ("oc.env:HOME", "oc.env:X,4", "path.choose:/a,/b", "path.glob:'/a/*'", "oc.decode:${oc.env:X}"):
            assert value(f'a: "${{{call}}}"', "a") is UNRESOLVED

    def test_an_absent_target_has_its_default(self) -> None:
        assert value("a: ${b.c}", "a", defaults={("b", "c"): 16}) == 16

    def test_overrides_come_first(self) -> None:
        text = "a: ${b}\nb: 4\nm: {n: 1, o: 2}"
        assert value(text, "a", overrides={("b",): 9}) == 9 == truth(text, "a", overrides=["b=9"])
        assert value(text, "m", overrides={("m", "n"): 5}) == {"n": 5, "o": 2}
        assert value(text, "m", "o", overrides={("m",): None}) is UNRESOLVED

    def test_no_null_is_a_section(self) -> None:
        assert value("wandb: null", "wandb", "log_interval") is UNRESOLVED

    def test_depth_is_bounded(self) -> None:
        chain = "\n".join(f"k{i}: ${{k{i + 1}}}" for i in range(500)) + "\nk500: 1"
        assert value(chain, "k0") is UNRESOLVED
        nested = "a: " + "${" * 300 + "b" + "}" * 300 + "\nb: b"
        assert value(nested, "a") in (UNRESOLVED, "b")

    @given(
        st.text(alphabet="ab.${}\\[]: 1x-", max_size=14),
        st.sampled_from(["1", "x", "true", "null", "1e-4", "b", "[1, 2]", "{a: 1}"]),
    )
    def test_never_raises_and_never_disagrees(self, text: str, target: str) -> None:
        source = f"b: {target}\n"
        import yaml

        source = yaml.safe_dump({"a": text}) + source
        ours, theirs = value(source, "a"), truth(source, "a")
        if ours is not UNRESOLVED and theirs is not UNRESOLVED and not isinstance(theirs, (dict, list)):
            assert ours == theirs
        if "${" not in text:
            assert ours == text


def test_an_override_around_a_setting_settles_it() -> None:
    one = config("m: {n: 1}", {("m",): {"o": 2}})
    assert one.value("m", "n") is MISSING
    assert one.value("m", "o") == 2
    assert one.override(("m", "o")) == ("m",)
