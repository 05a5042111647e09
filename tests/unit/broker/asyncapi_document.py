"""The AsyncAPI document, and the part of it that is made of the schemas in the package.

``python -m tests.unit.broker.asyncapi_document`` writes that part again, as ``make docs`` does: the last of
the file, below a comment that says so. The rest is written by hand. AsyncAPI finds schemas by their place in
the document, so each definition inside a schema becomes a schema of the document, such as ``event.error``.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import yaml

from tidewheel.broker.schemas import BODIES, schema_of

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "asyncapi.yaml"
MARK = "  # From here on written by `make docs`: change the files in broker/schemas.\n"
INNER = "#/$defs/"


class _Dumper(yaml.SafeDumper):
    """Writes lists as people do: a step further in than what they are in."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Begin a collection."""
        super().increase_indent(flow, indentless and flow)


def components() -> dict[str, Any]:
    """Return the schemas of all bodies as the document has them."""
    found: dict[str, Any] = {}
    for body in BODIES:
        schema = placed(schema_of(body), body)
        inner = schema.pop("$defs", {})
        found[body] = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
        found |= {f"{body}.{name}": shape for name, shape in inner.items()}
    return found


def placed(value: Any, body: str) -> Any:
    """Return *value* with its references to definitions of *body* as references into the document."""
    if isinstance(value, list):
        return [placed(each, body) for each in value]
    if not isinstance(value, dict):
        return value
    if str(value.get("$ref", "")).startswith(INNER):
        return {"$ref": f"#/components/schemas/{body}.{value['$ref'].removeprefix(INNER)}"}
    return {key: placed(each, body) for key, each in value.items()}


def with_schemas(text: str) -> str:
    """Return the *text* of the document with the part that is made of the schemas as it should be."""
    by_hand, mark, _ = text.partition(MARK)
    assert mark, f"the document has no line that says {MARK.strip()!r}"
    schemas = {"schemas": components()}
    dumped = yaml.dump(schemas, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return by_hand + mark + textwrap.indent(dumped, "  ")


def load() -> dict[str, Any]:
    """Return the document as read."""
    document = yaml.safe_load(DOCUMENT.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


if __name__ == "__main__":
    DOCUMENT.write_text(with_schemas(DOCUMENT.read_text("utf-8")), "utf-8")
