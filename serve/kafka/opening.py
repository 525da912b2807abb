"""Opening kafka-python's clients so that one which comes to nothing leaves nothing behind."""

from __future__ import annotations

from typing import Any


def opened(kind: type[Any], **options: Any) -> Any:
    """``kind(**options)`` for a `kafka.KafkaConsumer` or `kafka.KafkaAdminClient`.

    Both start a thread before they ask for a broker. kafka-python 3.0.12 leaves it running,
    with its sockets, if none answers: one more at every try, until the process may open no
    more files. Raises what ``kind`` raises, after that thread has ended.
    """
    client: Any = object.__new__(kind)
    try:
        client.__init__(**options)
    except BaseException:
        net = getattr(client, "_client", None)  # absent if the options were refused
        if net is not None:
            net.close()
        raise
    return client
