"""Checks a run. Each check names an invariant, with its number in the list I1-I21, and yields what violates it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from chaos.evidence import Evidence
from chaos.mails import repeated
from chaos.told import opened_twice, outlived, poison_untold

FINAL = ("Processed", "Cancelled")


@dataclass(frozen=True)
class Violation:
    """One violated invariant. order: the public id of the order; None where the violation concerns no single order."""

    kind: str
    order: str | None
    detail: str


Found = Iterator[tuple[str | None, str]]
_checks: dict[str, Callable[[Evidence], Found]] = {}


def _check(kind: str) -> Callable[[Callable[[Evidence], Found]], Callable[[Evidence], Found]]:
    def register(check: Callable[[Evidence], Found]) -> Callable[[Evidence], Found]:
        _checks[kind] = check
        return check

    return register


def violations(evidence: Evidence) -> dict[str, list[Violation]]:
    """Run every check; returns the violations by the check's name."""
    return {kind: [Violation(kind, *found) for found in check(evidence)] for kind, check in _checks.items()}


@_check("lost: accepted and no order (I1)")
def lost(evidence: Evidence) -> Found:
    known = Counter(run.key for run in evidence.rows["runs"])
    for fact in evidence.journal.of("client", "ok"):
        if known[fact["id"]] != 1:
            yield fact["id"], f"answered 202 for key {fact['key']}, has {known[fact['id']]} orders"


@_check("duplicate order: one key, two orders (I1)")
def duplicated(evidence: Evidence) -> Found:
    of_key: dict[str, set[str]] = defaultdict(set)
    for fact in evidence.journal.of("client", "ok"):
        of_key[fact["key"]].add(fact["id"])
    for row in evidence.rows["submissions"]:
        of_key[row.client_key].add(row.public_id)
    for key, ids in of_key.items():
        if len(ids) > 1:
            yield None, f"key {key} has {sorted(ids)}"


@_check("phantom: an order that no client sent (I2)")
def phantom(evidence: Evidence) -> Found:
    sent = {fact["key"] for fact in evidence.journal.of("client")}
    submitted = {row.public_id for row in evidence.rows["submissions"] if row.client_key in sent}
    for run in evidence.rows["runs"]:
        if run.key not in submitted:
            yield run.key, "no client sent it"


@_check("another body under a used key changed something (I3)")
def other_body(evidence: Evidence) -> Found:
    first = {
        fact["key"]: fact["lines"]
        for fact in evidence.journal.of("client", "ok", "refused", "indeterminate")
        if fact["as"] == "first" and fact["attempt"] == 1
    }
    for fact in evidence.journal.of("client", "ok"):
        if fact["as"] == "other-body":
            yield fact["id"], f"another body under key {fact['key']} was accepted"
    for row in evidence.rows["submissions"]:
        lines = [{"sku": line["sku"], "quantity": line["quantity"]} for line in json.loads(row.payload)["lines"]]
        if row.client_key in first and lines != first[row.client_key]:
            yield row.public_id, f"ordered {first[row.client_key]}, got {lines}"


@_check("stuck: not ended, and not in Error with an alert (I4)")
def stuck(evidence: Evidence) -> Found:
    alerts, steps = evidence.by_run("alerts"), evidence.by_run("steps")
    for run in evidence.rows["runs"]:
        if run.process_state in FINAL or (run.process_state == "Error" and any(a.kind == "error" for a in alerts[run.id])):
            continue
        now = [f"{s.direction} {s.name} {s.process_state} attempt {s.attempt}: {s.last_error}" for s in steps[run.id]]
        yield run.key, f"is {run.process_state}: {now}"
    for row in evidence.rows["submissions"]:
        if row.consumed_at is None:
            yield row.public_id, "was never consumed"


@_check("an Error that the operator could not resolve")
def unresolved(evidence: Evidence) -> Found:
    for run in evidence.rows["runs"]:
        if run.process_state == "Error":
            yield run.key, "is still in Error at the end"


@_check("duplicate charge (I5)")
def charged_twice(evidence: Evidence) -> Found:
    for order, effects in evidence.effects_of("payment-confirm").items():
        if len(effects) > 1:
            yield order, f"{len(effects)} charges: {[effect.key for effect in effects]}"


@_check("duplicate shipment (I5)")
def shipped_twice(evidence: Evidence) -> Found:
    for order, effects in evidence.effects_of("carrier-create").items():
        if len(effects) > 1:
            yield order, f"{len(effects)} shipments: {[effect.key for effect in effects]}"


@_check("a mail repeated without need, or more than once (I5)")
def mailed_twice(evidence: Evidence) -> Found:
    yield from repeated(evidence)


@_check("Processed without all of its effects, or with a wrong amount (I6)")
def incomplete(evidence: Evidence) -> Found:
    charges, refunds = evidence.effects_of("payment-confirm"), evidence.effects_of("payment-refund")
    booked, deleted = evidence.effects_of("carrier-create"), evidence.effects_of("carrier-delete")
    mails = evidence.effects_of("mail-deliver")
    totals = {row.public_id: row.total for row in evidence.rows["orders"]}
    steps = evidence.by_run("steps")
    for run in evidence.rows["runs"]:
        if run.process_state != "Processed":
            continue
        paid = sum(e.amount for e in charges[run.key]) - sum(e.amount for e in refunds[run.key])
        if Decimal(paid) != totals.get(run.key, Decimal(-1)) * 100:
            yield run.key, f"paid {paid}, total {totals.get(run.key)}"
        if len(booked[run.key]) - len(deleted[run.key]) != 1:
            yield run.key, f"{len(booked[run.key])} shipments, {len(deleted[run.key])} deleted"
        mail = next(step for step in steps[run.id] if step.name == "notify-customer")
        if mail.process_state == "Processed" and mail.idempotency_key not in {e.key for e in mails[run.key]}:
            yield run.key, f"no mail {mail.idempotency_key}"


@_check("Cancelled with a charge or a shipment left (I7)")
def not_undone(evidence: Evidence) -> Found:
    charges, refunds = evidence.effects_of("payment-confirm"), evidence.effects_of("payment-refund")
    booked, deleted = evidence.effects_of("carrier-create"), evidence.effects_of("carrier-delete")
    for run in evidence.rows["runs"]:
        if run.process_state != "Cancelled":
            continue
        left = sum(e.amount for e in charges[run.key]) - sum(e.amount for e in refunds[run.key])
        if left:
            yield run.key, f"{left} charged and not refunded"
        if len(booked[run.key]) != len(deleted[run.key]):
            yield run.key, f"{len(booked[run.key])} shipments, {len(deleted[run.key])} deleted"


@_check("orphan effect: a service did it, and the order has no record of it (I9)")
def orphans(evidence: Evidence) -> Found:
    run_of = {run.key: run.id for run in evidence.rows["runs"]}
    effect = {(s.run_id, s.name): s.effect for s in evidence.rows["steps"] if s.direction == "do"}
    step_of = {"payment-confirm": "charge-payment", "carrier-create": "book-shipment"}
    for one in evidence.effects:
        if one.operation not in step_of:
            continue
        known = effect.get((run_of.get(one.order or "", -1), step_of[one.operation]), "none")
        if known == "none":
            yield one.order, f"{one.operation} under {one.key}"


@_check("an attempt ended twice, or answered after its claim was broken (I10, I11)")
def attempts(evidence: Evidence) -> Found:
    ended: Counter[tuple[int, str, int, int]] = Counter()
    keys = {run.id: run.key for run in evidence.rows["runs"]}
    for event in evidence.rows["events"]:
        if event.position is not None and event.from_state == "Processing":
            ended[event.run_id, event.direction, event.position, event.attempt] += 1
        if event.from_state == "Processed" and event.position is not None:
            yield keys[event.run_id], f"step {event.position} left Processed (I13)"
    for (run_id, direction, position, attempt), count in ended.items():
        if count > 1:
            yield keys[run_id], f"attempt {attempt} of {direction} {position} ended {count} times"


@_check("a cancellation that was promised did not happen (H20)")
def cancelled_after_all(evidence: Evidence) -> Found:
    state = {run.key: run.process_state for run in evidence.rows["runs"]}
    for fact in evidence.journal.of("client", "cancel-ok"):
        if state.get(fact["id"]) not in ("Cancelled", "Error", "Compensating"):
            yield fact["id"], f"cancel was answered 202, is {state.get(fact['id'])}"


@_check("an order that was in Error never had an alert (I15)")
def silent_errors(evidence: Evidence) -> Found:
    alerts = evidence.by_run("alerts")
    keys = {run.id: run.key for run in evidence.rows["runs"]}
    for run_id in {event.run_id for event in evidence.rows["events"] if event.position is None and event.to_state == "Error"}:
        if not any(alert.kind == "error" for alert in alerts[run_id]):
            yield keys[run_id], "no alert of kind error"


_check("an incident that is still open after its cause has ended")(outlived)
_check("two incidents of one cause")(opened_twice)
_check("poison: a service failed for an order, and no incident contains it")(poison_untold)


@_check("malformed input was accepted (I16)")
def accepted_nonsense(evidence: Evidence) -> Found:
    nonsense = {fact["key"] for fact in evidence.journal.of("client") if "malformed" in fact.get("traits", ())}
    for row in evidence.rows["submissions"]:
        if row.client_key in nonsense:
            yield row.public_id, f"malformed under key {row.client_key}"
    for letter in evidence.rows["deadletters"]:
        yield letter.public_id, f"a dead letter, although only good orders were accepted: {letter.reason}"


@_check("stock is not exact (I20)")
def stock(evidence: Evidence) -> Found:
    held: Counter[str] = Counter()
    of_order: dict[str, Counter[str]] = defaultdict(Counter)
    for row in evidence.rows["reservations"]:
        if row.released_at is None:
            held[row.sku] += row.quantity
            of_order[row.order_key][row.sku] += row.quantity
    for product in evidence.rows["products"]:
        if product.available < 0 or evidence.stock_before[product.sku] - product.available != held[product.sku]:
            yield None, f"{product.sku}: {evidence.stock_before[product.sku]} before, {product.available} now, {held[product.sku]} held"
    wanted: dict[str, Counter[str]] = defaultdict(Counter)
    for row in evidence.rows["orders"]:
        wanted[row.public_id][row.sku] += row.quantity
    for run in evidence.rows["runs"]:
        right = wanted[run.key] if run.process_state == "Processed" else Counter()
        if run.process_state in FINAL and of_order[run.key] != right:
            yield run.key, f"{run.process_state}, holds {dict(of_order[run.key])} of {dict(wanted[run.key])}"


@_check("two clicks on one attempt both acted (I21)")
def double_clicks(evidence: Evidence) -> Found:
    acted = Counter(
        (f["id"], f["step"], f["direction"], f["attempt"]) for f in evidence.journal.of("bot", "resubmit") if f["status"] == 202
    )
    for (order, step, direction, attempt), count in acted.items():
        if count > 1:
            yield order, f"{count} resubmissions of {direction} {step}, attempt {attempt}"


@_check("manage.py audit (I8, I12, I14 and the store's own)")
def audit(evidence: Evidence) -> Found:
    for line in evidence.audit:
        yield None, line


@_check("deadlock: PostgreSQL had to end a transaction, and a process waited a second")
def deadlock(evidence: Evidence) -> Found:
    for detail in evidence.deadlocks:
        yield None, detail
