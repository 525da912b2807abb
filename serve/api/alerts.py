"""``/alerts``: what was found, and what people say of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query
from sqlalchemy import and_, exists, or_, select
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from detect.alert import rfc3339
from serve.api.auth import Reader, Using, Writer
from serve.api.problems import ProblemError, responses
from serve.api.schemas import (
    AcknowledgeBody,
    AlertDetail,
    AlertPage,
    FeedbackBody,
    FeedbackView,
    ResolveBody,
)
from serve.api.shared import (
    PREFIX,
    EntityId,
    Instant,
    Limit,
    Name,
    answer,
    check_if_match,
    created,
    decode_cursor,
    encode_cursor,
    nanoseconds_of,
)
from serve.lifecycle import AlertOverError, NoSuchAlertError, find_alert
from serve.services import Services
from serve.store.codec import alert_from_row, alert_json
from serve.store.tables import AlertMachineRow, AlertRow, FeedbackRow, OffenderRow
from serve.tokens import Principal

router = APIRouter(prefix=PREFIX, tags=["alerts"])

Status = Literal["open", "acknowledged", "resolved"]


@router.get("/alerts", response_model=AlertPage, responses=responses())
def list_alerts(
    request: Request,
    services: Using,
    _who: Reader,
    status: Annotated[list[Status] | None, Query()] = None,
    job: Annotated[Name | None, Query()] = None,
    machine: Annotated[Name | None, Query()] = None,
    since: Annotated[Instant | None, Query(description="Detected at or after this time.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Alerts, newest first."""
    query = select(AlertRow)
    if status:
        query = query.where(AlertRow.status.in_(status))
    if job is not None:
        query = query.where(AlertRow.job == job)
    if machine is not None:
        named = exists().where(
            AlertMachineRow.alert_id == AlertRow.id, AlertMachineRow.machine == machine
        )
        query = query.where(named)
    if since is not None:
        query = query.where(AlertRow.detected_at_ns >= nanoseconds_of(since))
    if cursor is not None:
        at, last = decode_cursor(cursor, (int, str))
        earlier = AlertRow.detected_at_ns < at
        query = query.where(or_(earlier, and_(AlertRow.detected_at_ns == at, AlertRow.id < last)))
    query = query.order_by(AlertRow.detected_at_ns.desc(), AlertRow.id.desc()).limit(limit + 1)
    with services.database.read() as session:
        rows = list(session.scalars(query))
        items = [alert_json(row, services.links) for row in rows[:limit]]
    more = rows[limit - 1] if len(rows) > limit else None
    following = encode_cursor(more.detected_at_ns, more.id) if more else None
    return answer(request, {"items": items, "next_cursor": following})


@router.get("/alerts/{alert_id}", response_model=AlertDetail, responses=responses(404))
def get_alert(request: Request, services: Using, _who: Reader, alert_id: EntityId) -> Response:
    """One alert, with proposed commands, earlier incidents of its machines, and feedback."""
    with services.database.read() as session:
        return answer(request, _detail(session, services, _found(session, alert_id)))


@router.post(
    "/alerts/{alert_id}/acknowledge", response_model=AlertDetail, responses=responses(404, 409, 412)
)
def acknowledge(
    request: Request,
    services: Using,
    who: Writer,
    alert_id: EntityId,
    body: Annotated[AcknowledgeBody | None, Body()] = None,
) -> Response:
    """Somebody is on it. Repeating it changes nothing."""
    by = signed(who, body.by if body else "")
    try:
        with services.database.write() as session:
            _unchanged(request, session, services, alert_id)
            now_ns = services.database.clock()
            applied = services.lifecycle.acknowledge(session, alert_id, by=by, now_ns=now_ns)
            services.outbox.enqueue(session, applied.notices)
            detail = _detail(session, services, find_alert(session, alert_id))
    except AlertOverError:
        raise ProblemError(409, "The alert is resolved already.") from None
    services.told(applied)
    return answer(request, detail)


@router.post(
    "/alerts/{alert_id}/resolve", response_model=AlertDetail, responses=responses(404, 412)
)
def resolve(
    request: Request,
    services: Using,
    who: Writer,
    alert_id: EntityId,
    body: Annotated[ResolveBody | None, Body()] = None,
) -> Response:
    """It is over. It stays so until detection names another machine or sees a new incident."""
    by = signed(who, body.by if body else "")
    with services.database.write() as session:
        _unchanged(request, session, services, alert_id)
        now_ns = services.database.clock()
        note = body.note if body else ""
        applied = services.lifecycle.resolve(session, alert_id, by=by, now_ns=now_ns, note=note)
        services.outbox.enqueue(session, applied.notices)
        detail = _detail(session, services, find_alert(session, alert_id))
    services.told(applied)
    return answer(request, detail)


@router.post(
    "/alerts/{alert_id}/feedback",
    status_code=201,
    response_model=FeedbackView,
    responses=responses(404),
)
def feedback(services: Using, who: Writer, alert_id: EntityId, body: FeedbackBody) -> Response:
    """Whether the verdict was right, and which machine it was. Training uses it."""
    by = signed(who, body.author)
    with services.database.write() as session:
        _found(session, alert_id)
        now_ns = services.database.clock()
        applied = services.lifecycle.feedback(
            session,
            alert_id,
            verdict=body.verdict,
            machine=body.machine,
            note=body.note,
            by=by,
            now_ns=now_ns,
        )
    services.told(applied)
    return created(
        {
            "verdict": body.verdict,
            "machine": body.machine,
            "note": body.note,
            "author": by,
            "at": rfc3339(now_ns),
        }
    )


def signed(who: Principal, given: str) -> str:
    """Who did it: the name given, and the token it came with."""
    name = given.strip()
    if who.name == "local":
        return name or "local"
    return f"{name} ({who.name})" if name and name != who.name else who.name


def _found(session: Session, alert_id: str) -> AlertRow:
    try:
        return find_alert(session, alert_id)
    except NoSuchAlertError:
        raise ProblemError(404, f"There is no alert {alert_id!r}.") from None


def _unchanged(request: Request, session: Session, services: Services, alert_id: str) -> None:
    check_if_match(request, _detail(session, services, _found(session, alert_id)))


def _detail(session: Session, services: Services, row: AlertRow) -> dict[str, Any]:
    alert = alert_from_row(row)
    named = select(OffenderRow).where(OffenderRow.machine.in_(alert.machines[:500]))
    opinions = select(FeedbackRow).where(FeedbackRow.alert_id == row.id).order_by(FeedbackRow.id)
    return alert_json(row, services.links) | {
        "commands": [{"purpose": c.purpose, "text": c.text} for c in services.commands(alert)],
        "earlier_incidents": {r.machine: max(0, r.incidents - 1) for r in session.scalars(named)},
        "feedback": [
            {
                "verdict": f.verdict,
                "machine": f.machine,
                "note": f.note,
                "author": f.author,
                "at": rfc3339(f.at_ns),
            }
            for f in session.scalars(opinions)
        ],
    }
