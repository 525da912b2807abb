"""The file of what could not be used."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson

from ingest.reject import RejectFile
from ingest.samples import Rejected


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_an_item_is_one_line_with_all_it_says(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rejects.jsonl"
    with RejectFile(path) as file:
        file.write([Rejected("localhost", "t/0@1", "why", b"\xff{", rows=3)])
    assert lines(path) == [
        {
            "reason": "localhost",
            "origin": "t/0@1",
            "detail": "why",
            "rows": 3,
            "payload_base64": base64.b64encode(b"\xff{").decode(),
        }
    ]
    assert file.counts == {"localhost": 3}


def test_a_clean_run_leaves_no_file(tmp_path: Path) -> None:
    with RejectFile(tmp_path / "rejects.jsonl") as file:
        file.write([])
    assert list(tmp_path.iterdir()) == []


def test_a_new_run_does_not_keep_the_old_lines(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    for origin in ("old", "new"):
        with RejectFile(path) as file:
            file.write([Rejected("x", origin)])
    assert [line["origin"] for line in lines(path)] == ["new"]


def test_a_large_payload_is_cut_and_its_size_told(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    with RejectFile(path, max_payload_bytes=4) as file:
        file.write([Rejected("x", "o", payload=b"123456")])
    (line,) = lines(path)
    assert (base64.b64decode(line["payload_base64"]), line["payload_bytes"]) == (b"1234", 6)


def test_the_file_is_bounded_and_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    with RejectFile(path, max_bytes=1000) as file:
        for index in range(100):
            file.write([Rejected("a" if index % 2 else "b", f"o{index}", rows=2)])
    written = lines(path)
    last = written.pop()
    assert path.stat().st_size < 1200
    assert last["rows"] == 2 * (100 - len(written))
    assert sum(last["by_reason"].values()) == last["rows"]
    assert file.counts == {"a": 100, "b": 100}
