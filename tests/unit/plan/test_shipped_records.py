"""The records that come with the collection: what they say, and that they are what the code would write today."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import hardware, model_shape
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from suite import records

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30
# What each of eight ranks of the real server took.
MEASURED_GIB = 71.95708


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / records.MODEL).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shape(text: str) -> ModelShape:
    return model_shape.from_json(text, str(records.MODEL))


def test_the_model_record_is_what_the_collection_reads_from_the_headers(text: str) -> None:
    assert text == records.blackwell_model(), "run PYTHONPATH=scripts python -m suite.records"


def test_the_model_record_has_kilobytes(text: str) -> None:
    assert 1_000 < len(text) < 20_000


def test_the_weights_of_a_rank_are_those_that_were_measured(shape: ModelShape) -> None:
    assert model_shape.weight_bytes_per_rank(shape, 8) / GIB == pytest.approx(MEASURED_GIB, rel=0.005)
    assert shape.approximate == ()


def test_the_model_record_is_of_the_files_that_the_case_has(shape: ModelShape) -> None:
    assert (shape.architecture, shape.layers, shape.experts) == ("KimiK25ForConditionalGeneration", 61, 384)
    assert (shape.files, shape.tensors, round(shape.total_bytes / 1e9)) == (64, 208_550, 595)
    assert shape.is_multimodal


def test_both_records_are_of_one_case(shape: ModelShape) -> None:
    path = ROOT / records.MODEL.with_name("hardware.json")
    node = hardware.from_json(path.read_text(encoding="utf-8"))
    assert len(node.gpus) == 8
    assert model_shape.weight_bytes_per_rank(shape, len(node.gpus)) < min(gpu.free_bytes for gpu in node.gpus)
