"""One file per wire format; `ingest.formats.registry` finds the decoder for a content type."""
