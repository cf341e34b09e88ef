from __future__ import annotations

import pytest

from cfglint_train.hardware.catalogue import ASSUMPTION, Hardware, UnknownHardware, build_hardware
from cfglint_train.plan.origin import FieldValue, Origin

GIB = 2**30


def make_facts(**facts: str) -> dict[str, FieldValue]:
    return {
        name.replace("_", "-"): FieldValue(text, Origin("user", note=f"--{name.replace('_', '-')}"))
        for name, text in facts.items()
    }


def test_without_facts_an_80_gb_card_is_assumed():
    hardware = build_hardware({})
    assert hardware.gpu == "A100-80GB"
    assert hardware.get_capacity("gpu") == int(79.1 * GIB)
    assert hardware.gpu_origin == ASSUMPTION
    assert hardware.get_capacity("host") is hardware.get_capacity("disk") is None
    assert hardware.compute_capability == 8.0


def test_a_stated_card_is_no_assumption():
    hardware = build_hardware(make_facts(gpu="H200"))
    assert (hardware.gpu, hardware.gpu_origin.kind, hardware.compute_capability) == ("H200", "user", 9.0)
    assert hardware.gpu_origin.note == "--gpu"
    assert hardware.get_capacity("gpu") == int(139.72 * GIB)


@pytest.mark.parametrize(
    ("facts", "gpu", "gib"),
    [
        ({"gpu": "80GB"}, None, 79.1),
        ({"gpu_memory": "80GB"}, None, 79.1),
        ({"gpu_memory": "79.32GiB"}, None, 79.32),
        ({"gpu": "A100", "gpu_memory": "40GB"}, "A100-40GB", 39.38),
        ({"gpu": "H100", "gpu_memory": "96GB"}, "H100-96GB", 94.99),
        ({"gpu": "H100", "gpu_memory": "80GB"}, "H100-80GB", 79.1),
        ({"gpu": "A100", "gpu_memory": "19.5GiB"}, "A100-80GB", 19.5),  # a slice of a card
        ({"gpu": "a card of 2027", "gpu_memory": "320GiB"}, None, 320.0),
    ],
)
def test_the_gpu(facts, gpu, gib):
    hardware = build_hardware(make_facts(**facts))
    assert hardware.gpu == gpu
    assert hardware.gpu_bytes == pytest.approx(gib * GIB, rel=1e-9)
    assert hardware.gpu_origin.kind != "assumed"


def test_host_and_disk():
    hardware = build_hardware(make_facts(host_memory="1.5TB", disk="10TiB"))
    assert hardware.get_capacity("host") == 15 * 10**11
    assert hardware.get_capacity("disk") == 10 * 2**40
    assert "assumed" not in (hardware.host_origin.kind, hardware.disk_origin.kind)
    assert hardware.gpu_origin.kind == "assumed"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"gpu": "H1000"}, "gpu: .*did you mean H100-80GB"),
        ({"gpu": "80"}, "gpu: .*no unit"),
        ({"gpu_memory": "much"}, "gpu-memory: .*80GB"),
        ({"host_memory": "0GB"}, "host-memory: "),
        ({"disk": "10"}, "disk: .*no unit"),
        ({"tokens_per_second": "52k"}, "tokens-per-second must be a positive number such as 52000, not '52k'"),
        ({"price_per_gpu_hour": "0.0"}, "price-per-gpu-hour must be a positive number"),
        ({"price_per_gpu_hour": "EUR 2"}, "price-per-gpu-hour .* such as 2.40 or 2.40 EUR"),
    ],
)
def test_what_means_nothing_is_refused_with_its_origin(facts, message):
    with pytest.raises(UnknownHardware, match=message) as refused:
        build_hardware(make_facts(**facts))
    assert refused.value.origin.note == "--" + next(iter(facts)).replace("_", "-")


def test_a_place_that_does_not_exist():
    with pytest.raises(KeyError):
        Hardware().get_capacity("tape")
