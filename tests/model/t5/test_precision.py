"""Which precision is chosen, and what is said about it; only the question to the processor or GPU is replaced."""

import pytest
import torch

from model.t5 import precision
from model.t5.backbone import load_backbone
from model.t5.precision import choose

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def processor(monkeypatch):
    """Give the processor some features instead of its own."""

    def have(**features):
        answer = {"avx2": True, "avx512_bf16": False, "amx_bf16": False, "cpu_name": "made up"} | features
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: answer)
        precision.processor_features.cache_clear()

    yield have
    precision.processor_features.cache_clear()


@pytest.mark.parametrize("unit", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_on_a_processor_with_units_for_it(processor, unit):
    processor(**{unit: True})
    choice = choose("auto", CPU)
    assert str(choice) == f"bfloat16 (auto: this processor has {unit.upper()})"
    assert not choice.warning


@pytest.mark.parametrize("features", [{}, {"avx512_f": True, "avx512_fp16": True}])
def test_auto_is_float32_on_any_other_processor(processor, features):
    processor(**features)
    choice = choose("auto", CPU)
    assert choice.precision == "float32"
    assert "does not compute in bfloat16" in choice.why
    assert not choice.warning


@pytest.mark.parametrize(("has", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_asks_a_gpu_for_units_and_not_for_emulation(monkeypatch, has, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: has or including_emulation)
    assert choose("auto", GPU).precision == expected


@pytest.mark.parametrize("unit", [False, True])
def test_float32_is_float32_everywhere(processor, unit):
    processor(avx512_bf16=unit)
    assert choose("float32", CPU) == precision.Choice("float32", "as asked for")


def test_bfloat16_without_units_warns_with_the_measured_cost(processor, monkeypatch):
    processor()
    monkeypatch.setattr(precision, "slow_down", lambda _where: 3.21)
    choice = choose("bfloat16", CPU)
    assert choice.precision == "bfloat16"
    assert "a product takes 3.2 times as long" in choice.warning


def test_the_cost_is_measured():
    assert 0 < precision.slow_down(CPU) < 1e4


def test_bfloat16_with_units_does_not_warn(processor):
    processor(avx512_bf16=True)
    assert not choose("bfloat16", CPU).warning


@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_a_backbone_is_loaded_in_the_precision_asked_for(tiny_models, wanted):
    assert load_backbone(tiny_models / "backbone", CPU, precision=wanted).dtype == getattr(torch, wanted)


@pytest.mark.parametrize(("unit", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_by_default_the_device_decides(tiny_models, processor, unit, expected):
    processor(avx512_bf16=unit)
    assert load_backbone(tiny_models / "backbone", CPU).dtype == expected
