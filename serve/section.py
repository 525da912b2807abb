"""The base of every section of the configuration file.

Unknown keys are errors, values are frozen, and every `SecretStr` field ``x`` has a twin
``x_file`` that names a file to read it from (a list of secrets: one a line).
"""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

Seconds = Annotated[float, Field(ge=0, le=10 * 365 * 86_400, allow_inf_nan=False)]
"""A duration in seconds; the key's name ends in ``_seconds``."""


def _not_empty(secret: SecretStr) -> SecretStr:
    if not secret.get_secret_value().strip():
        raise ValueError("must not be empty")
    return secret


Secret = Annotated[SecretStr, AfterValidator(_not_empty)]
"""Never shown or logged; its key has a ``_file`` twin."""


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for name, field in cls.model_fields.items():
            if f"{name}_file" in cls.model_fields or not _holds_secret(field.annotation):
                continue
            path = data.pop(f"{name}_file", None)
            if path is None:
                continue
            if name in data:
                raise ValueError(f"{name} and {name}_file exclude each other")
            text = read_secret_file(f"{name}_file", path)
            is_list = typing.get_origin(field.annotation) in (list, tuple)
            data[name] = [line for line in text.splitlines() if line] if is_list else text
        return data


def read_secret_file(key: str, path: object) -> str:
    """The file's text without its trailing line break; ValueError names ``key`` and why not."""
    if not isinstance(path, str | Path):
        raise ValueError(f"{key} must be a path")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ValueError(f"{key}: cannot read {path}: {reason}") from None


def _holds_secret(annotation: Any) -> bool:
    if annotation is SecretStr:
        return True
    return any(_holds_secret(inner) for inner in typing.get_args(annotation))
