"""Rows of floats become an array, bit by bit; anything else is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.formats.number_matrix import number_matrix
from tests.formats_support import FUZZ


@given(st.data(), st.sampled_from([1, 15, 16, 40]), st.sampled_from([1, 15, 16, 90]))
@FUZZ
def test_every_float_keeps_its_bits(data: st.DataObject, width: int, count: int) -> None:
    some = data.draw(st.lists(st.floats(), min_size=1, max_size=30))
    rows = [tuple(some[(7 * r + c) % len(some)] for c in range(width)) for r in range(count)]
    found = number_matrix(rows)
    assert found is not None
    expected = np.array(rows, dtype=np.float64).T
    assert found.view(np.uint64).tolist() == expected.view(np.uint64).tolist()


def test_many_rows_are_read_as_well() -> None:
    found = number_matrix([(float(k), -1.5) for k in range(70_000)])
    assert found is not None
    assert found[0].tolist() == list(range(70_000))
    assert found[1].tolist() == [-1.5] * 70_000


@pytest.mark.parametrize("odd", ["", "8 octets", "N/A", None, 7, 2**63])
def test_rows_that_hold_anything_else_are_refused(odd: object) -> None:
    assert number_matrix([(1.0, 2.0), (odd, math.nan), (3.0, 4.0)]) is None


def test_rows_without_fields_have_no_columns() -> None:
    found = number_matrix([(), ()])
    assert found is not None
    assert found.shape == (0, 2)
    assert number_matrix([]) is not None
