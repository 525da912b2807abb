"""JSON rows: every shape of message, and poison that costs only itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.formats.json_rows import CHUNK_ROWS, JsonDecoder
from ingest.rules import Rules
from ingest.samples import Decoded
from tests.formats_support import (
    FUZZ,
    T0_MS,
    T0_NS,
    context,
    metrics,
    origins,
    reasons,
    rows,
    values,
)


def row(index: int = 0, **more: Any) -> dict[str, Any]:
    return {"ts": T0_MS + index, "job": "j", "machine": f"n{index % 4}", "gpu": index % 8, **more}


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def decode(*messages: bytes, rules: Rules | None = None) -> Decoded:
    names = [f"t/0@{index}" for index in range(len(messages))]
    return JsonDecoder(context(rules)).decode(messages, names)


def test_one_row_a_message() -> None:
    done = decode(dump(row(0, gpu_power_watts=1.5)), dump(row(1, DCGM_FI_DEV_GPU_UTIL=50)))
    assert rows(done) == [
        {"ts": T0_NS, "job": "j", "machine": "n0", "gpu": 0, "gpu_power_watts": 1.5},
        {
            "ts": T0_NS + 10**6,
            "job": "j",
            "machine": "n1",
            "gpu": 1,
            "gpu_utilization_ratio": 0.5,
        },
    ]
    assert (done.rejected, done.counts) == ([], {})


def test_an_array_and_lines_hold_the_same_rows() -> None:
    content = [row(index, x=float(index)) for index in range(5)]
    array = decode(dump(content))
    lines = decode(b"\n".join(map(dump, content)) + b"\n")
    windows = decode(b"\r\n".join(map(dump, content)))
    assert rows(array) == rows(lines) == rows(windows)
    assert array.samples.num_rows == 5


def test_a_pretty_printed_row_is_a_row() -> None:
    assert decode(json.dumps(row(x=1.0), indent=2).encode()).samples.num_rows == 1


def test_a_time_may_be_a_text_or_a_number_in_one_batch() -> None:
    done = decode(
        dump(row(x=1.0)),
        dump({**row(x=2.0), "ts": "2023-11-14T22:13:20.000Z"}),
        dump({**row(x=3.0), "ts": T0_MS / 1000}),
    )
    assert {r["ts"] for r in rows(done)} == {T0_NS}
    assert done.samples.num_rows == 3


def test_a_column_that_mixes_numbers_texts_blanks_and_null_loses_no_row() -> None:
    mixed = [1.0, "2", "N/A", None, "<<<NULL>>>", 3, "x"]
    done = decode(*(dump(row(index, x=value)) for index, value in enumerate(mixed)))
    assert values(done, "x") == [1.0, 2.0, None, None, None, 3.0, None]
    assert done.counts == {"blank": 2, "non_numeric": 1}


@pytest.mark.parametrize("odd", [True, False, {"a": 1}, [1, 2], []])
def test_a_value_that_cannot_be_a_number_is_counted_and_its_row_stays(odd: Any) -> None:
    done = decode(dump(row(0, x=1.0, y=5)), dump(row(1, x=odd, y=6)))
    assert (values(done, "x"), values(done, "y")) == ([1.0, None], [5.0, 6.0])
    assert done.counts == {"non_numeric": 1}


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
def test_a_number_that_is_not_finite_is_missing_and_its_row_stays(token: str) -> None:
    odd = dump(row(1, x="#", y=6)).replace(b'"#"', token.encode())
    done = decode(dump(row(0, x=1.0, y=5)), odd)
    assert (values(done, "x"), values(done, "y")) == ([1.0, None], [5.0, 6.0])
    assert done.counts == {"not_finite": 1}


def test_large_integers_are_numbers() -> None:
    large = [9007199254740993, 2**60, 2**64 - 1, 10**30]
    done = decode(*(dump(row(index, x=value)) for index, value in enumerate(large)))
    assert done.counts == {"blank": 2}
    assert values(done, "x")[:2] == [float(large[0]), float(large[1])]


def poisons() -> dict[str, bytes]:
    good = dump(row(x=1.0))
    return {
        "undecodable": good[:-3],
        "undecodable ": b"",
        "undecodable  ": b"\xff\xfe",
        "undecodable   ": good.replace(b'"j"', b'"\xff"'),
        "undecodable    ": good.replace(b'"j"', b'"\\ud800"'),
        "undecodable     ": b"{'ts': 1}",
        "not_a_row": b"3",
        "not_a_row ": b'"text"',
        "not_a_row  ": b"null",
        "too_deep": b"[" * 200_000,
        "too_deep ": b'{"x":' * 200_000,
        "duplicate_key": good.replace(b'"x": 1.0', b'"x": 1.0, "x": 2.0'),
        "bad_timestamp": dump({**row(), "ts": "never"}),
        "bad_timestamp ": b"{}",
        "no_machine": dump({**row(), "machine": None}),
        "localhost": dump({**row(), "machine": "localhost"}),
        "no_job": dump({"ts": T0_MS, "machine": "n1"}),
        "bad_gpu": dump({**row(), "gpu": -1}),
        "bad_assignment": b'{"job": "", "machines": ["n1"]}',
    }


@pytest.mark.parametrize("name", list(poisons()))
def test_poison_is_rejected_alone_and_by_its_origin(name: str) -> None:
    good = [dump(row(index, x=float(index))) for index in range(20)]
    messages = [*good[:10], poisons()[name], *good[10:]]
    done = decode(*messages)
    assert reasons(done) == {name.strip(): 1}
    assert origins(done) == ["t/0@10"]
    assert sorted(v for v in values(done, "x") if v is not None) == list(map(float, range(20)))


def test_the_payload_of_an_unreadable_message_is_kept() -> None:
    assert decode(b"{").rejected[0].payload == b"{"


def test_a_message_of_too_many_bytes_is_refused_unread() -> None:
    done = decode(dump(row(x=1.0)), b"[" * 2000, rules=Rules(max_message_bytes=1000))
    assert (reasons(done), done.samples.num_rows) == ({"too_large": 1}, 1)
    assert done.rejected[0].payload is None


@pytest.mark.parametrize("join", [b",", b"\n"])
def test_a_message_of_too_many_rows_is_refused(join: bytes) -> None:
    text = join.join(dump(row(index)) for index in range(11))
    message = b"[" + text + b"]" if join == b"," else text
    done = decode(message, dump(row(x=1.0)), rules=Rules(max_rows_per_message=10))
    assert (reasons(done), done.samples.num_rows) == ({"too_many_rows": 11}, 1)


def test_a_poison_line_costs_only_itself() -> None:
    lines = [dump(row(index, x=float(index))) for index in range(5)]
    lines[2] = b'{"ts": '
    lines[4] = lines[4].replace(b'"j"', b'"\xff"')
    done = decode(b"\n".join(lines))
    assert sorted(x for x in values(done, "x") if x is not None) == [0.0, 1.0, 3.0]
    assert sorted(origins(done)) == ["t/0@0, line 3", "t/0@0, line 5"]
    assert sum(reasons(done).values()) == 2


def test_a_poison_row_of_an_array_is_named() -> None:
    done = decode(dump([row(0, x=1.0), 7, {**row(2), "machine": ""}, row(3, x=2.0)]))
    assert values(done, "x") == [1.0, 2.0]
    assert {(r.reason, r.origin) for r in done.rejected} == {
        ("not_a_row", "t/0@0, row 1"),
        ("no_machine", "t/0@0, row 2"),
    }


def test_a_text_that_looks_like_a_key_is_no_duplicate_key() -> None:
    done = decode(*(dump({**row(i, x=1.0), "job": 'a": "b": null'}) for i in range(3)))
    assert (done.samples.num_rows, done.rejected) == (3, [])


def test_a_key_twice_is_found_among_many_rows_with_nulls() -> None:
    messages = [dump(row(i, x=None if i % 3 else 1.0)) for i in range(100)]
    messages[50] = messages[50].replace(b'"j"', b'"j", "job": "k"')
    done = decode(*messages)
    assert (origins(done), done.samples.num_rows) == (["t/0@50"], 99)


def test_unknown_names_are_bounded_and_counted() -> None:
    rules = Rules(max_unknown_metrics=3)
    decoder = JsonDecoder(context(rules))
    for batch in range(3):
        messages = [dump(row(i, **{f"x{batch}_{i}": 1.0})) for i in range(10)]
        done = decoder.decode(messages, [""] * 10)
        assert done.samples.num_rows == 10
        assert done.counts["unknown_name"] == (7 if batch == 0 else 10)
    assert metrics(done) == []


def test_known_names_do_not_count_as_unknown() -> None:
    done = decode(
        dump(row(gpu_power_watts=1, UUID="GPU-1", x=1, y=1)), rules=Rules(max_unknown_metrics=1)
    )
    assert metrics(done) == ["gpu_power_watts", "x"]


def test_rows_of_differing_shape_share_a_batch() -> None:
    messages = [dump(row(i, **{f"m{i % 7}": float(i)})) for i in range(50)]
    done = decode(*messages)
    assert metrics(done) == [f"m{i}" for i in range(7)]
    assert done.samples.num_rows == 50
    assert sum(done.samples.column(f"m{i}").null_count for i in range(7)) == 50 * 6


def test_many_chunks_keep_origins_right() -> None:
    count = 2 * CHUNK_ROWS + 10
    messages = [dump(row(i, x=1.0)) for i in range(count)]
    at = CHUNK_ROWS + 5
    messages[at] = dump({**row(at, x=1.0), "machine": ""})
    done = decode(*messages)
    assert (origins(done), done.samples.num_rows) == ([f"t/0@{at}"], count - 1)


def test_an_assignment_among_the_rows_gives_later_rows_their_job() -> None:
    decoder = JsonDecoder(context())
    assign = dump({"job": "train", "machines": ["n0"], "start": T0_MS})
    plain = {"ts": T0_MS, "machine": "n0", "x": 1.0}
    done = decoder.decode([assign, dump(plain)], ["a", "b"])
    assert done.samples.column("job").to_pylist() == ["train"]
    assert done.counts == {"assignments": 1}


def test_dcgm_field_ids_are_names_where_the_rules_say_so() -> None:
    message = dump(row(**{"155": 700, "203": 50}))
    assert metrics(decode(message)) == ["155", "203"]
    known = decode(message, rules=Rules(dcgm_ids=True))
    assert metrics(known) == ["gpu_power_watts", "gpu_utilization_ratio"]


def test_a_given_time_unit_is_not_questioned() -> None:
    done = decode(dump({**row(x=1.0), "ts": T0_MS}), rules=Rules(time_unit="s"))
    assert reasons(done) == {"bad_timestamp": 1}


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["N/A", "1", "nan", 2147483632, "2023-11-14T22:13:20Z", T0_MS, "localhost"]),
)
keys = st.one_of(
    st.sampled_from(["ts", "job", "machine", "gpu", "x", "GPU_I_ID", "UUID", "machines"]),
    st.sampled_from(["DCGM_FI_DEV_GPU_UTIL", "port_xmit_data", "x:counter", "time", "host"]),
    st.text(max_size=4),
)
objects = st.dictionaries(keys, st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=8)
messages_ = st.one_of(
    objects.map(dump),
    st.lists(objects, max_size=4).map(dump),
    st.lists(objects, max_size=4).map(lambda some: b"\n".join(map(dump, some))),
    scalars.map(dump),
    st.binary(max_size=30),
    st.builds(lambda o, cut: dump(o)[:cut], objects, st.integers(0, 60)),
)


@FUZZ
@given(st.lists(messages_, max_size=6), st.integers(0, 6))
def test_whatever_comes_the_decoder_does_not_raise_and_good_rows_survive(
    fuzz: list[bytes], place: int
) -> None:
    good = [dump(row(index, weaklink_good=float(index))) for index in range(3)]
    messages = [*fuzz[:place], *good, *fuzz[place:]]
    done = decode(*messages)
    found = [v for v in values(done, "weaklink_good") if v is not None]
    assert sorted(found) == [0.0, 1.0, 2.0]


@FUZZ
@given(st.lists(objects.filter(lambda o: "machines" not in o), max_size=12))
def test_every_row_comes_out_or_is_rejected(content: list[dict[str, Any]]) -> None:
    single = decode(*map(dump, content))
    array = decode(dump(content))
    for done in (single, array):
        assert done.samples.num_rows + sum(reasons(done).values()) == len(content)
    key = lambda r: json.dumps(r, sort_keys=True)  # noqa: E731
    assert sorted(rows(single), key=key) == sorted(rows(array), key=key)


@FUZZ
@given(
    st.lists(
        st.fixed_dictionaries(
            {"ts": st.just(T0_MS), "job": st.just("j"), "machine": st.sampled_from(["a", "b"])},
            optional={
                "gpu": st.integers(0, 7),
                "gpu_power_watts": st.one_of(st.none(), st.floats(0, 1000)),
                "x": st.one_of(st.none(), st.floats(-1e9, 1e9), st.just("N/A"), st.booleans()),
            },
        ),
        max_size=30,
    ),
    st.integers(1, 7),
)
def test_how_messages_are_cut_into_calls_does_not_matter(
    content: list[dict[str, Any]], step: int
) -> None:
    messages = list(map(dump, content))
    whole = decode(*messages)
    decoder = JsonDecoder(context())
    parts = []
    for start in range(0, len(messages), step):
        some = messages[start : start + step]
        parts += rows(decoder.decode(some, [""] * len(some)))
    key = lambda r: json.dumps(r, sort_keys=True)  # noqa: E731
    assert sorted(parts, key=key) == sorted(rows(whole), key=key)
