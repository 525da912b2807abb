"""Decoding what is pushed over HTTP: the content type says which wire format."""

from __future__ import annotations

import zlib
from typing import Protocol

import zstandard

from ingest.samples import Decoded


class UnknownFormatError(Exception):
    """No decoder for this content type; the message names those there are."""


class PushDecoder(Protocol):
    """Makes samples of one request's body; callable from several threads."""

    def decode(self, content_type: str, body: bytes, origin: str, received_ns: int) -> Decoded:
        """Decode; raises `UnknownFormatError`, never for what is in the body."""
        ...


class TooLargeError(Exception):
    """The body is larger than allowed once decompressed."""


def decompress(encoding: str, body: bytes, limit_bytes: int) -> bytes:
    """The body without its ``Content-Encoding`` (identity, gzip, deflate, zstd).

    Raises ValueError for an unknown encoding or damaged bytes, `TooLargeError` beyond the
    limit (a small body that would fill the memory is refused before it does).
    """
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            return _inflate(body, 31, limit_bytes)
        case "deflate":
            return _inflate(body, 15, limit_bytes)
        case "zstd":
            return _unzstd(body, limit_bytes)
        case _:
            raise ValueError(f"content encoding {encoding!r} is not gzip, deflate or zstd")


def _inflate(body: bytes, bits: int, limit_bytes: int) -> bytes:
    inflater = zlib.decompressobj(bits)
    try:
        text = inflater.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"damaged compressed body: {error}") from None
    if len(text) > limit_bytes:
        raise TooLargeError
    if not inflater.eof:
        raise ValueError("damaged compressed body: it ends too early")
    return text


def _unzstd(body: bytes, limit_bytes: int) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(body)
    try:
        text = reader.read(limit_bytes + 1)
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged compressed body: {error}") from None
    if len(text) > limit_bytes:
        raise TooLargeError
    return text
