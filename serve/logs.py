"""Structured logs on stderr: one event a line, JSON for machines or coloured for people."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from serve.config import LogSettings

NOISY = ("kafka", "httpx", "httpcore", "alembic", "uvicorn.access")


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send the logs of this process, libraries included, to ``stream`` (default: stderr)."""
    stream = stream or sys.stderr
    human = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Tracebacks without local variables: those may hold secrets.
    last: list[structlog.typing.Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # kafka-python writes errors by the dozen while a broker is away; `serve.kafka.link` says
    # once what matters of them.
    kafka = logging.INFO if root.level <= logging.DEBUG else logging.CRITICAL
    logging.getLogger("kafka").setLevel(kafka)
