"""``/docs``: the API for people, from its own OpenAPI description; nothing is loaded from afar."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter
from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_METHODS = ("get", "post", "delete")


@router.get("/docs", response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    """Every operation with its parameters, the fields of its body, and an example."""
    described: dict[str, Any] = request.app.openapi()
    shapes = described["components"]["schemas"]
    base = str(request.base_url).rstrip("/")
    operations = [
        _operation(base, path, method, item[method], shapes)
        for path, item in described["paths"].items()
        for method in _METHODS
        if method in item
    ]
    templates = Environment(loader=PackageLoader("serve.api"), autoescape=True)
    nonce = secrets.token_urlsafe(16)
    page = templates.get_template("docs.html").render(
        version=described["info"]["version"],
        openapi_url=f"{request.scope.get('root_path', '')}{request.app.openapi_url}",
        operations=operations,
        nonce=nonce,
    )
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; frame-ancestors 'none'"
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})


def _operation(
    base: str, path: str, method: str, item: dict[str, Any], shapes: dict[str, Any]
) -> dict[str, Any]:
    data, fields = "", []
    if "requestBody" in item:
        kind, content = next(iter(item["requestBody"]["content"].items()))
        fields = _fields(content["schema"], shapes)
        data = f" -X POST -H 'Content-Type: {kind}' --data-binary @body"
    verb = (
        " -X DELETE" if method == "delete" else " -X POST" if method == "post" and not data else ""
    )
    return {
        "method": method.upper(),
        "path": path,
        "description": item.get("description", item.get("summary", "")),
        "parameters": [*map(_parameter, item.get("parameters", ())), *fields],
        "example": f"curl{verb}{data} '{base}{path}'",
        "answers": ", ".join(f"{s} {r['description']}" for s, r in item["responses"].items()),
    }


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": parameter["name"],
        "place": parameter["in"],
        "required": parameter.get("required", False),
        "type": _type(parameter["schema"]),
        "description": parameter.get("description", ""),
    }


def _fields(schema: dict[str, Any], shapes: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a JSON body, as parameters; none where it may hold anything."""
    for named in schema.get("anyOf", (schema,)):
        schema = shapes.get(named.get("$ref", "").rpartition("/")[2], schema)
    needed = schema.get("required", ())
    return [
        _parameter({"name": name, "in": "body", "required": name in needed, "schema": field})
        | {"description": field.get("description", "")}
        for name, field in schema.get("properties", {}).items()
    ]


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_type(s) for s in schema["anyOf"] if s.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"{_type(schema['items'])}, repeatable"
    return str(schema.get("format", schema.get("type", "")))
