"""Decoders for what is pushed over HTTP and what arrives from Kafka."""

from __future__ import annotations

from ingest.assignments import Assignments
from ingest.catalogue import Catalogue
from ingest.formats.protocol import Context, Decoder
from ingest.formats.registry import CONTENT_TYPES, format_of, make_decoder
from ingest.rules import Rules
from ingest.samples import Decoded
from serve.push import UnknownFormatError
from serve.source import concat_decoded


class FormatDecoder:
    """Implements `serve.push.PushDecoder` over the registry of formats.

    A request is a world of its own: its decoder remembers nothing of another one, so two
    senders never mix and a request's rows never wait for the next.
    """

    def __init__(self, catalogue: Catalogue, rules: Rules, job_of_machine: dict[str, str]):
        self.catalogue = catalogue
        self.rules = rules
        self.job_of_machine = job_of_machine

    def decode(self, content_type: str, body: bytes, origin: str, received_ns: int) -> Decoded:
        """See `PushDecoder`."""
        kind = format_of(content_type)
        if kind is None:
            known = ", ".join(sorted(CONTENT_TYPES))
            raise UnknownFormatError(
                f"Content type {content_type!r} is none of those understood: {known}; "
                "a parameter format=NAME tells formats that share a type."
            )
        decoder = self.decoder(kind, Assignments(self.job_of_machine))
        assert decoder is not None
        decoded = decoder.decode([body], [origin], [received_ns])
        return concat_decoded([decoded, decoder.flush()])

    def decoder(self, kind: str, assignments: Assignments) -> Decoder | None:
        """A fresh decoder for a format's name or content type; None if nobody knows it."""
        name = format_of(kind)
        if name is None:
            return None
        return make_decoder(name, Context(self.catalogue, self.rules, assignments))
