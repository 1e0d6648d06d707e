"""Changing the lines of an order that is not charged yet: its goods, its total and its payment follow in one transaction.

The run is locked, so a step that begins, or a customer who pays again at this moment, comes before the change or after it: a step
that is running refuses the change, and a step that begins later reads the new total. The guarded statement `_CHANGE` counts the
lines, the total and the pieces that it found as they were read; where one differs, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from orders import accounting
from orders.agents.payment_transfer import received
from orders.edits import codes, mail
from orders.edits.lines import Change, changed
from orders.parcels.splitting import BOOKING, ORDER_WORKFLOW
from orders.payments import codes as payments
from orders.services import Conflict, OrderRefused
from supervision.approvals import gate
from supervision.errors import ChangedMeanwhile, Refused, UnknownRun
from supervision.models import StepState
from supervision.operations.acting import carry_out, commit, demand_reason, locked_run
from supervision.operations.audit_log import Actor, name_of
from supervision.operations.previews import as_it_is, is_asleep, same_plan, seen
from supervision.postgres import db
from supervision.states import ATTEMPTS_PER_EPOCH, FINAL_RUN_STATES, Direction, Effect, ProcessState
from supervision.store.runs.locked_run import LockedRun

# As the stock agent locks them.
_LOCK = "SELECT FROM orders_product WHERE sku = ANY (%(skus)s::text[]) ORDER BY sku FOR NO KEY UPDATE"
_CHANGE = """
WITH wanted AS (SELECT * FROM unnest(%(skus)s::text[], %(before)s::int[], %(after)s::int[]) v(sku, before, after)),
of AS (UPDATE orders_order SET total = %(total)s WHERE public_id = %(key)s AND total = %(old)s RETURNING id),
fewer AS (UPDATE orders_orderline l SET quantity = w.after FROM wanted w, of
           WHERE l.order_id = of.id AND l.sku = w.sku AND l.quantity = w.before AND w.after > 0 RETURNING l.sku),
gone AS (DELETE FROM orders_orderline l USING wanted w, of
          WHERE l.order_id = of.id AND l.sku = w.sku AND l.quantity = w.before AND w.after = 0 RETURNING l.sku),
held AS (UPDATE orders_stockreservation r
            SET quantity = CASE w.after WHEN 0 THEN r.quantity ELSE w.after END, released_at = CASE w.after WHEN 0 THEN now() END
           FROM wanted w WHERE r.order_key = %(key)s AND r.sku = w.sku AND r.released_at IS NULL AND r.quantity = w.before
         RETURNING r.sku, w.before - w.after AS freed),
stock AS (UPDATE orders_product p SET available = p.available + h.freed FROM held h WHERE p.sku = h.sku)
SELECT (SELECT count(*) FROM of), (SELECT count(*) FROM fewer) + (SELECT count(*) FROM gone), (SELECT count(*) FROM held)
"""


def change_lines(
    key: str,
    *,
    lines: Sequence[Mapping[str, Any]],
    reason: str,
    by: Actor,
    plan_version: str | None = None,
    total: Decimal | None = None,
) -> Change:
    """Give the order these quantities (`orders.edits.lines`); returns what has changed.

    Its total follows, pieces that are no longer wanted go back on the shelf, and the customer gets a mail. plan_version, total: the
    version of the preview, and the order's total before the change. Raises InvalidOrder, Conflict, UnknownRun, ChangedMeanwhile and
    AwaitsApproval; Refused without a reason.
    """
    demand_reason(reason)
    done: list[Change] = []

    def work() -> str:
        locked = locked_run(key)
        same_plan(locked, plan_version)
        demand_editable(locked)
        change = changed(locked.run.payload, lines)
        if total is not None and change.before != total:
            raise ChangedMeanwhile(_("The order has changed since it was read. Look again before acting."))
        said = _n("lines changed: %(change)s: %(reason)s") % {"change": str(change), "reason": reason}
        given = [{"sku": line["sku"], "quantity": line["quantity"]} for line in lines]
        state = carry_out(
            locked, by, codes.VERB, reason, lambda: _change(locked, change, name_of(by), said), said=said, lines=given
        )  # fmt: skip
        done[:] = [change]
        return state

    commit(work)
    return done[0]


@gate.executor(codes.VERB)
def _approved(key: str, /, *, by: Actor, reason: str, plan_version: str | None, **arguments: Any) -> str:
    """Change the lines as a second operator has approved. Raises Refused where it is not possible any more."""
    try:
        return str(change_lines(key, lines=arguments["lines"], by=by, reason=reason, plan_version=plan_version))
    except Conflict as problem:
        raise Refused(problem.message, problem.code) from problem
    except OrderRefused as problem:
        raise Refused(str(problem), codes.NOT_EDITABLE) from problem


def preview(key: str, lines: Sequence[Mapping[str, Any]]) -> tuple[Change, str]:
    """What the change would be, and the version of the order that it was made for. Raises as `change_lines` does; changes nothing."""
    locked = as_it_is(key)
    demand_editable(locked)
    return changed(locked.run.payload, lines), seen(locked)


def why_not(key: str) -> str:
    """Why the lines of this order cannot be changed now; empty where they can."""
    try:
        return _hindrance(as_it_is(key))
    except (Refused, UnknownRun) as problem:
        return str(problem)


def demand_editable(locked: LockedRun) -> None:
    """Raise Conflict where the lines of this order cannot be changed now."""
    if text := _hindrance(locked):
        raise Conflict(codes.NOT_EDITABLE, text, {"order": [text]})


def _hindrance(locked: LockedRun) -> str:
    run = locked.run
    if run.workflow != ORDER_WORKFLOW or run.process_state in FINAL_RUN_STATES or run.direction == Direction.UNDO:
        return _("The order is %(state)s: its lines cannot be changed any more. After a delivery a return is the way.") % {
            "state": run.process_state
        }
    for step in locked.steps:
        if step.process_state == ProcessState.PROCESSING:
            return _("%(step)s is running: try again when it has come to rest.") % {"step": step.name}
    for step in locked.steps:
        if step.name in (*payments.STEPS, BOOKING) and (text := _too_late(step, str(run.payload.get("currency") or ""))):
            return text
    return ""


def _too_late(step: StepState, currency: str) -> str:
    """Why it is too late for a change, by a step that takes money or books the goods; empty where it has not begun, or was refused."""
    words = {"step": step.name}
    if step.effect == Effect.DONE or step.process_state in (ProcessState.PROCESSED, ProcessState.SKIPPED):
        return _("%(step)s is done: the lines cannot be changed any more. Cancel the order, or take a return after the delivery.") % words
    if received(step.checkpoint or {}, currency.upper()):
        return _("A part of the total has come by bank transfer: the lines cannot be changed any more.")
    if is_asleep(step) and step.awaits == payments.TRANSFER:
        return ""
    if step.effect == Effect.UNKNOWN:
        return _("It is not known what %(step)s has done: resubmit it first.") % words
    if step.process_state == ProcessState.PENDING and step.attempt % ATTEMPTS_PER_EPOCH > 0:
        return _("%(step)s is being tried: change the lines when it is refused, or before it begins.") % words
    return ""


def _change(locked: LockedRun, change: Change, actor: str, said: str) -> None:
    skus = sorted(change.pieces)
    db.fetch(_LOCK, {"skus": skus})
    facts = {
        "key": locked.run.key,
        "skus": skus,
        "before": [change.pieces[sku][0] for sku in skus],
        "after": [change.pieces[sku][1] for sku in skus],
        "old": change.before,
        "total": change.total,
    }
    [(orders, lines, held)] = db.fetch(_CHANGE, facts)
    reserved = any(step.agent == "stock" and step.effect == Effect.DONE for step in locked.steps)
    if (orders, lines, held) != (1, len(skus), len(skus) if reserved else 0):
        raise ChangedMeanwhile(_("The order has changed since it was read. Look again before acting."))
    locked.amend({"lines": list(change.lines), "total": str(change.total.quantize(Decimal("0.01")))})
    locked.note(actor, said)
    accounting.record_changed(locked.run.key, locked.run.payload, before=change.before)
    mail.queue(locked.run, change)
