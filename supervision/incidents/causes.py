"""Causes of incidents that no step reports: dead letters, journals, pauses beyond their bound, undeliverable messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision import conf
from supervision.agent import agents
from supervision.incidents.incident_sql import SEEN
from supervision.incidents.lifecycle import CRITICAL, WARNING, Cause, detector, members
from supervision.postgres import db

DEAD_LETTERS, JOURNAL, PAUSE_OVERRUN, DELIVERY_FAILED = "dead_letters", "journal", "pause_overrun", "delivery_failed"
CHANNEL_FAILED = "channel_failed"
FAILING_SECONDS = 900.0  # a receiver that has failed for this long without a success is an incident
delivered_kinds: set[str] = set()  # the kinds of notifications that this process knows; `outbox.notifications` names them
ONE_BY_ONE = 20  # failing webhooks that have an incident each
REMEMBERED = "interval '7 days'"  # a final failure is reported for this long, or until an operator acknowledges it


def _weight(count: int) -> str:
    return CRITICAL if count >= conf.get().incident_critical_orders else WARNING


# ----------------------------------------------------------------------------------------------------- channels

_FAILING_CHANNELS = """
SELECT id, name, failing_since, last_error FROM supervision_channel
 WHERE active AND failing_since < now() - %(failing)s::float8 * interval '1 s'
"""


@detector(CHANNEL_FAILED)
def silent_channels() -> Iterator[Cause]:
    """Channels that have taken no message about incidents for FAILING_SECONDS. The other channels and mails tell of it."""
    for pk, name, since, error in db.fetch(_FAILING_CHANNELS, {"failing": FAILING_SECONDS}):
        title = _("The channel %(name)s takes no alerts: %(error)s") % {"name": name, "error": error}
        yield Cause(kind=CHANNEL_FAILED, key=f"{CHANNEL_FAILED}:{pk}", title=title, resource=str(pk), since=since)


# ------------------------------------------------------------------------------------------------- dead letters


@detector(DEAD_LETTERS)
def dead_letters() -> Iterator[Cause]:
    """Dead letters that no operator has requeued or discarded yet. Those with a public id are accepted orders."""
    count, orders, since = db.fetch(
        "SELECT count(*), count(DISTINCT public_id), min(created_at) FROM supervision_deadletter WHERE resolved_at IS NULL"
    )[0]
    if count:
        title = ngettext("%(n)d dead letter waits for a decision.", "%(n)d dead letters wait for a decision.", count) % {"n": count}
        yield Cause(kind=DEAD_LETTERS, key=DEAD_LETTERS, title=title, severity=_weight(count), orders=orders, since=since)


# ------------------------------------------------------------------------------------------------------ journal

# Entries that can never be written are reported until an operator acknowledges their incident.
_REFUSED = f"""
SELECT key, count(*), min(failed_at), (array_agg(error ORDER BY id DESC))[1] FROM supervision_journalentry e
 WHERE failed_at > now() - {REMEMBERED}
   AND failed_at > {SEEN.format(cause="'journal:' || e.key || ':refused'")}
 GROUP BY key
"""  # noqa: S608 - a constant


@detector(JOURNAL)
def journals() -> Iterator[Cause]:
    """Journals whose files cannot be written, and entries that no file can hold."""
    rows = db.fetch("SELECT key, failing_since, last_error FROM supervision_writerlease WHERE failing_since IS NOT NULL")
    for key, since, error in rows:
        title = _("The journal %(key)s cannot be written; its entries wait: %(error)s") % {"key": key, "error": error}
        yield Cause(kind=JOURNAL, key=f"{JOURNAL}:{key}", title=title, resource=key, since=since)
    for key, count, since, error in db.fetch(_REFUSED):
        title = ngettext(
            "%(n)d entry of the journal %(key)s cannot be written: %(error)s",
            "%(n)d entries of the journal %(key)s cannot be written, the last: %(error)s",
            count,
        ) % {"n": count, "key": key, "error": error}
        yield Cause(kind=JOURNAL, key=f"{JOURNAL}:{key}:refused", title=title, resource=key, since=since)


# ------------------------------------------------------------------------------------------------------- pauses

# Pauses in force without an end that are older than the bound. All those of single orders share one cause.
_OLD_PAUSES = """
SELECT scope, CASE scope WHEN 'order' THEN '' ELSE name END, min(paused_at)
  FROM supervision_pause p
 WHERE p.lifted_at IS NULL AND p.until IS NULL AND p.paused_at < now() - %(bound)s::float8 * interval '1 s'
   AND (p.scope <> 'order' OR p.run_id IS NULL OR EXISTS (
        SELECT FROM supervision_run r WHERE r.id = p.run_id AND r.finished_at IS NULL))
 GROUP BY 1, 2
"""
_HELD_BY_ALL = (
    "SELECT s.run_id FROM supervision_stepstate s WHERE s.process_state = 'Pending' AND s.turn_at IS NOT NULL AND s.not_before <= now()"
)
_HELD = {
    "all": _HELD_BY_ALL,
    "agent": f"{_HELD_BY_ALL} AND s.agent = %(name)s",
    "workflow": f"{_HELD_BY_ALL} AND EXISTS (SELECT FROM supervision_run r WHERE r.id = s.run_id AND r.workflow = %(name)s)",
    "order": "SELECT p.run_id FROM supervision_pause p JOIN supervision_run r ON r.id = p.run_id AND r.finished_at IS NULL"
    " WHERE p.scope = 'order' AND p.lifted_at IS NULL AND p.until IS NULL"
    " AND p.paused_at < now() - %(bound)s::float8 * interval '1 s'",
    "resource": f"{_HELD_BY_ALL} AND s.agent = ANY (%(agents)s::text[])",
}
# A resource's row does not say when it was paused. The oldest step that waits for it shows how long it has held orders.
_PAUSED_RESOURCES = """
SELECT r.name, a.agents, s.since
  FROM supervision_resource r
  JOIN (SELECT service, array_agg(agent) AS agents FROM unnest(%(names)s::text[], %(services)s::text[]) a(agent, service)
         GROUP BY service) a ON a.service = CASE r.service WHEN '' THEN r.name ELSE r.service END
 CROSS JOIN LATERAL (SELECT min(s.not_before) AS since FROM supervision_stepstate s
                      WHERE s.process_state = 'Pending' AND s.turn_at IS NOT NULL AND s.not_before <= now() AND s.agent = ANY (a.agents)) s
 WHERE r.paused AND s.since < now() - %(bound)s::float8 * interval '1 s'
   AND NOT EXISTS (SELECT FROM supervision_resource o WHERE NOT o.paused
                      AND CASE o.service WHEN '' THEN o.name ELSE o.service END = CASE r.service WHEN '' THEN r.name ELSE r.service END)
"""


def _bound() -> float:
    return conf.get().pause_bound.total_seconds()


@detector(PAUSE_OVERRUN)
def forgotten_pauses() -> Iterator[Cause]:
    """Pauses without an end, older than PAUSE_BOUND, that hold orders."""
    for scope, name, since in db.fetch(_OLD_PAUSES, {"bound": _bound()}):
        yield from _paused(scope, name, since)
    known = [agent for agent in agents() if agent.resource is not None]
    params = {"names": [agent.name for agent in known], "services": [agent.resource for agent in known], "bound": _bound()}
    for name, _agents, since in db.fetch(_PAUSED_RESOURCES, params):
        yield from _paused("resource", name, since)


def _paused(scope: str, name: str, since: datetime) -> Iterator[Cause]:
    count = db.fetch(f"SELECT count(*) FROM ({_HELD[scope]}) held", _params(scope, name))[0][0]  # noqa: S608 - constants
    if not count:
        return
    what = {
        "all": _("Everything is paused"),
        "agent": _("The agent %(name)s is paused"),
        "workflow": _("The workflow %(name)s is paused"),
        "order": _("Single orders are paused"),
        "resource": _("The resource %(name)s is paused"),
    }[scope] % {"name": name}
    title = _("%(what)s, without an end, and holds orders.") % {"what": what}
    key = ":".join(filter(None, [PAUSE_OVERRUN, scope, name]))
    resource = name if scope == "resource" else ""
    yield Cause(kind=PAUSE_OVERRUN, key=key, title=title, severity=_weight(count), resource=resource, orders=count, since=since)


def _params(scope: str, name: str) -> dict[str, object]:
    chosen = _agents_of(name) if scope == "resource" else []
    return {"name": name, "bound": _bound(), "agents": chosen}


def _agents_of(resource: str) -> list[str]:
    rows = db.run("SELECT CASE service WHEN '' THEN name ELSE service END FROM supervision_resource WHERE name = %(n)s", {"n": resource})
    services = {row[0] for row in rows}
    return [agent.name for agent in agents() if agent.resource in services]


@members(PAUSE_OVERRUN)
def runs_of_pause(cause: str) -> Sequence[int]:
    """The runs that a forgotten pause holds."""
    _kind, scope, name = [*cause.split(":", 2), ""][:3]
    if scope not in _HELD:
        return []
    return sorted({run_id for (run_id,) in db.run(_HELD[scope], _params(scope, name)) if run_id is not None})


# --------------------------------------------------------------------------------------------------- deliveries

# Messages are counted only where each webhook has an incident. The sort by a column that is null here is the order of their index.
_FAILING_ENDPOINTS = """
WITH failing AS MATERIALIZED (
    SELECT id, public_id, url, client, failing_since, count(*) OVER () AS together, min(failing_since) OVER () AS first
      FROM supervision_webhookendpoint
     WHERE active AND removed_at IS NULL AND failing_since < now() - %(failing)s::float8 * interval '1 s'
     ORDER BY id LIMIT %(one_by_one)s + 1)
SELECT e.public_id, e.url, e.client, e.failing_since, e.together, e.first,
       CASE WHEN e.together <= %(one_by_one)s THEN (SELECT count(DISTINCT run_id) FROM (
               SELECT run_id FROM supervision_delivery d WHERE d.endpoint_id = e.id AND d.reply_token_id IS NULL
                  AND d.delivered_at IS NULL AND d.given_up_at IS NULL ORDER BY d.reply_token_id, d.not_before LIMIT 10000) w) END
  FROM failing e ORDER BY e.id
"""
_GIVEN_UP = f"""
SELECT count(*), min(given_up_at), (array_agg(last_error ORDER BY given_up_at DESC))[1] FROM supervision_notification
 WHERE given_up_at > now() - {REMEMBERED}
   AND given_up_at > {SEEN.format(cause="'delivery_failed:notifications'")}
"""  # noqa: S608 - a constant
# Those that failed wait for their next try, so they come first, however many others wait for their first. A kind that this process
# does not know is left to processes of a newer release: it is told of when none of them has delivered it in time.
_FAILING = """
SELECT kind, count(*), min(created_at), (array_agg(last_error ORDER BY not_before DESC))[1]
  FROM (SELECT kind, created_at, not_before, last_error FROM supervision_notification
         WHERE delivered_at IS NULL AND given_up_at IS NULL AND NOT (kind = 'status') AND kind <> 'hook'
         ORDER BY not_before DESC LIMIT 10000) waiting
 WHERE (last_error <> '' AND created_at < now() - %(failing)s::float8 * interval '1 s')
    OR (kind <> ALL (%(known)s::text[]) AND not_before < now() - %(failing)s::float8 * interval '1 s')
 GROUP BY kind ORDER BY kind
"""


def _failing_webhooks() -> Iterator[Cause]:
    """One cause for each webhook; for more than ONE_BY_ONE of them one in all: then our way out is closed, and not a receiver."""
    facts = {"failing": FAILING_SECONDS, "one_by_one": ONE_BY_ONE}
    for public_id, url, client, since, together, first, waiting in db.fetch(_FAILING_ENDPOINTS, facts):
        if together > ONE_BY_ONE:
            title = _("%(n)d webhooks do not take their messages.") % {"n": together}
            yield Cause(kind=DELIVERY_FAILED, key=f"{DELIVERY_FAILED}:webhooks", title=title, since=first)
            return
        title = _("The webhook %(url)s of %(client)s does not take its messages.") % {"url": url, "client": client}
        key = f"{DELIVERY_FAILED}:webhook:{public_id}"
        yield Cause(kind=DELIVERY_FAILED, key=key, title=title, resource=url[:200], orders=waiting, since=since)


@detector(DELIVERY_FAILED)
def undeliverable() -> Iterator[Cause]:
    """Webhooks and notifications that have failed for FAILING_SECONDS without a success, and notifications that were given up."""
    yield from _failing_webhooks()
    count, since, error = db.fetch(_GIVEN_UP)[0]
    if count:
        title = ngettext(
            "%(n)d message of ours was refused and given up: %(error)s",
            "%(n)d messages of ours were refused and given up, the last: %(error)s",
            count,
        ) % {"n": count, "error": error or "-"}
        yield Cause(kind=DELIVERY_FAILED, key=f"{DELIVERY_FAILED}:notifications", title=title, since=since)
    for kind, count, since, last in db.fetch(_FAILING, {"failing": FAILING_SECONDS, "known": sorted(delivered_kinds)}):
        error = last or _("no process that runs knows this kind")
        title = ngettext(
            "%(n)d message of the kind %(kind)s fails again and again: %(error)s",
            "%(n)d messages of the kind %(kind)s fail again and again, the last: %(error)s",
            count,
        ) % {"n": count, "kind": kind, "error": error}
        yield Cause(kind=DELIVERY_FAILED, key=f"{DELIVERY_FAILED}:{kind}", title=title, since=since)
