"""Arrow IPC messages."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ingest.formats.arrow_stream import MAX_COLUMNS, ArrowDecoder
from ingest.rules import Rules
from ingest.samples import Decoded
from tests.formats_support import T0_NS, context, metrics, origins, raw, reasons, rows, values


def stream(table: pa.Table, *, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(*messages: bytes, rules: Rules | None = None) -> Decoded:
    names = [f"t/0@{index}" for index in range(len(messages))]
    return ArrowDecoder(context(rules)).decode(messages, names)


TABLE = raw(gpu=[0, 1], DCGM_FI_DEV_GPU_UTIL=[50.0, 4294967295.0], x=[1.0, 2.0])


@pytest.mark.parametrize("message", [stream(TABLE), file(TABLE), stream(TABLE, compression="zstd")])
def test_a_stream_or_file_is_read(message: bytes) -> None:
    done = decode(message)
    assert rows(done)[0] == {
        "ts": T0_NS,
        "job": "j",
        "machine": "n1",
        "gpu": 0,
        "gpu_utilization_ratio": 0.5,
        "x": 1.0,
    }
    assert (done.samples.num_rows, done.counts) == (2, {"limit": 1})


def test_messages_of_differing_schema_share_a_batch() -> None:
    done = decode(stream(TABLE), stream(raw(y=["1", "N/A"])), stream(TABLE))
    assert metrics(done) == ["gpu_utilization_ratio", "x", "y"]
    assert done.samples.num_rows == 6


def test_messages_with_differing_dictionaries_are_read() -> None:
    tables = [raw(machine=pa.array([name]).dictionary_encode(), x=1.0) for name in ("a", "b")]
    assert decode(*map(stream, tables)).samples.column("machine").to_pylist() == ["a", "b"]


def test_a_bad_row_is_named_by_its_message_and_row() -> None:
    done = decode(stream(TABLE), stream(raw(machine=["n1", "", "n2"], x=1.0)))
    assert origins(done) == ["t/0@1, row 1"]
    assert done.samples.num_rows == 4


@pytest.mark.parametrize(
    "poison", [b"", b"ARROW1", b"{}", stream(TABLE)[:100], stream(TABLE)[10:], b"\xff" * 64]
)
def test_poison_is_rejected_alone(poison: bytes) -> None:
    done = decode(stream(TABLE), poison, stream(TABLE))
    assert (reasons(done), origins(done)) == ({"undecodable": 1}, ["t/0@1"])
    assert done.samples.num_rows == 4


def test_flipped_bytes_never_raise_and_spare_the_neighbours() -> None:
    generator = random.Random(1)
    good = stream(TABLE)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(generator.randint(1, 6)):
            bad[generator.randrange(len(bad))] = generator.randrange(256)
        done = decode(good, bytes(bad), good)
        assert [v for v in values(done, "x") if v in (1.0, 2.0)][:2] == [1.0, 2.0]
        assert done.samples.num_rows + sum(reasons(done).values()) >= 4


def test_too_many_columns_are_refused() -> None:
    wide = raw(**{f"c{index}": 1.0 for index in range(MAX_COLUMNS)})
    assert reasons(decode(stream(wide))) == {"too_many_columns": 1}


def test_too_many_rows_or_bytes_are_refused() -> None:
    message = stream(TABLE)
    assert reasons(decode(message, rules=Rules(max_rows_per_message=1))) == {"too_many_rows": 2}
    assert reasons(decode(message, rules=Rules(max_message_bytes=10))) == {"too_large": 1}


def test_no_rows_are_no_fault() -> None:
    done = decode(stream(TABLE.slice(0, 0)))
    assert (done.samples.num_rows, done.rejected) == (0, [])
