"""Registering projections: what an app takes, what it refuses and why, and what a row may hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidewheel import App, InvalidRequest, PublicEvent
from tidewheel.sdk.projections import ProjectionDefinition, projection_definition
from tidewheel.store.projections import Column

EVENT = PublicEvent(
    run_id="r", run_seq=1, prev_seq=0, event_type="RunCompleted", workflow="sell", data={}, idempotency_key=""
)


@dataclass(frozen=True)
class SalesByDay:
    """What was sold on a day."""

    day: str
    shop: int
    orders: int = 0
    revenue: float = 0.0
    is_closed: bool = False
    note: str | None = None

    @classmethod
    def key(cls, event: PublicEvent) -> tuple[str, int] | None:
        """Return the day of a sale."""
        return ("mon\0", 7) if event.event_type == "RunCompleted" else None

    def reduce(self, event: PublicEvent) -> SalesByDay:
        """Add a sale."""
        orders, revenue = self.orders + 1, self.revenue + len(event.workflow)
        return replace(self, orders=orders, revenue=revenue, note="\0")


def definition(**options: Any) -> ProjectionDefinition:
    """Return the definition of the class above."""
    return projection_definition(SalesByDay, **({"name": None, "table": None} | options))


def test_a_class_is_a_table() -> None:
    """Its fields are the columns, those without a default the key; names come from the class."""
    app = App("shop")
    made = app.projection(SalesByDay)

    found = app.projections["SalesByDay"]
    assert made is SalesByDay
    assert (found.name, found.table.name, found.table.key_count) == ("SalesByDay", "sales_by_day", 2)
    assert found.table.columns[:2] == (Column("day", "text"), Column("shop", "integer"))
    assert found.table.columns[3:] == (
        Column("revenue", "real"),
        Column("is_closed", "boolean"),
        Column("note", "text", is_nullable=True),
    )


def test_names_may_be_given_and_another_apps_projections_taken_in() -> None:
    """As with workflows and tasks: the same twice is once, and two of one name are refused."""
    app, other = App("shop"), App("other")
    app.projection(name="sales", table="sales")(SalesByDay)

    other.include(app)
    other.include(app)

    assert other.projections["sales"].table.name == "sales"
    clash = App("clash")
    clash.projection(name="sales")(dataclass(frozen=True)(type("Other", (SalesByDay,), {})))
    with pytest.raises(InvalidRequest, match="already has a projection 'sales'"):
        other.include(clash)


def test_events_become_rows() -> None:
    """From nothing and from what is there; NUL, which no database takes, is a sign."""
    made = definition()
    key = made.key_of(EVENT)

    assert key == ("mon\N{SYMBOL FOR NULL}", 7)
    first = made.reduced(key, None, EVENT)
    assert first == ("mon\N{SYMBOL FOR NULL}", 7, 1, 4.0, False, "\N{SYMBOL FOR NULL}")
    assert made.reduced(key, first, EVENT)[2:4] == (2, 8.0)
    assert made.key_of(PublicEvent(**{**fields(EVENT), "event_type": "RunStarted"})) is None


def fields(event: PublicEvent) -> dict[str, Any]:
    """Return the fields of *event*."""
    return {name: getattr(event, name) for name in event.__struct_fields__}


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        ({"key": classmethod(lambda *_: "mon")}, "key\\(\\) gave 1 values for 2 columns"),
        ({"key": classmethod(lambda *_: ("mon", "7"))}, "shop is str, and its column is integer"),
        ({"key": classmethod(lambda *_: ("mon", True))}, "shop is bool"),
        ({"reduce": lambda *_: None}, "reduce\\(\\) gave NoneType"),
        ({"reduce": lambda self, _: replace(self, day="tue")}, "changed the key"),
        ({"reduce": lambda self, _: replace(self, orders=1.5)}, "orders is float"),
        ({"reduce": lambda self, _: replace(self, orders=2**63)}, "orders has no room"),
        ({"reduce": lambda self, _: replace(self, revenue=None)}, "revenue is NoneType"),
    ],
)
def test_a_row_that_fits_no_table_is_refused(methods: dict[str, Any], problem: str) -> None:
    """Before a database is asked to take it."""
    plain = {"key": classmethod(lambda *_: ("mon", 7))}
    cls: type[Any] = dataclass(frozen=True)(type("Wrong", (SalesByDay,), plain | methods))
    made = projection_definition(cls, name=None, table=None)

    with pytest.raises(TypeError, match=problem):
        made.reduced(made.key_of(EVENT) or (), None, EVENT)


def a_class(annotations: dict[str, Any], **members: Any) -> type[Any]:
    """Return a class that is nearly a projection."""
    methods = {"key": classmethod(lambda *_: None), "reduce": lambda self, _: self}
    return type("Nearly", (), {"__annotations__": annotations, **methods, **members})


@pytest.mark.parametrize(
    ("cls", "problem"),
    [
        (int, "write a dataclass"),
        (7, "write a dataclass"),
        (dataclass(a_class({"day": str})), "write @dataclass\\(frozen=True\\)"),
        (dataclass(frozen=True)(a_class({"day": str}, reduce=None)), "has no reduce\\(\\)"),
        (dataclass(frozen=True)(a_class({"day": str}, key=None)), "has no key\\(\\)"),
        (dataclass(frozen=True)(a_class({"day": str}, key=lambda *_: None)), "write @classmethod"),
        (dataclass(frozen=True)(a_class({"day": str}, day="mon")), "has no key: fields without a default"),
        (dataclass(frozen=True)(a_class({"day": str | None})), "cannot be None"),
        (dataclass(frozen=True)(a_class({"day": list})), "write str, int, float or bool"),
        (dataclass(frozen=True)(a_class({"day": str | int})), "write str, int, float or bool"),
        (dataclass(frozen=True)(a_class({"Day": str})), "column 'Day' is not allowed"),
    ],
)
def test_what_is_no_projection_is_refused_with_what_to_write(cls: Any, problem: str) -> None:
    """When it is registered, not when the first event comes."""
    with pytest.raises(InvalidRequest, match=problem):
        App("shop").projection(cls)


@pytest.mark.parametrize("table", ["tidewheel_runs", "Sales", "a-b", "", "1a", 'x"; DROP TABLE y'])
def test_a_table_cannot_have_any_name(table: str) -> None:
    """It is written into statements, and our own tables are not for others."""
    with pytest.raises(InvalidRequest, match="is not allowed"):
        definition(table=table)
