"""The gate that every operator's verb passes before it acts. Above the limit the verb does not act: it becomes a request.

0. Where the account acts in a session that was last proved too long ago (`account.proof_is_old`), a verb that moves or forgoes money
   raises ProofNeeded. The application asks again who it is, and repeats the verb.
1. A verb calls `through` under the lock of what it changes, before its first write. Below the limit nothing happens. Above it,
   `through` raises, so the verb's transaction ends without a change.
2. `asking`, around that transaction, writes the request and raises AwaitsApproval with its number. The same verb with the same
   arguments on the same state of the order has one pending request, however often it is asked for.
3. Once another operator approves, `deciding` calls the verb again by its executor, inside `carrying_out`. The verb passes the gate
   then, under all its other guards, and never for more money than was approved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from supervision import conf
from supervision.approvals import rights, stakes
from supervision.approvals.actors import Actor, Exempt, account_of, name_of
from supervision.approvals.stakes import Operation
from supervision.errors import AwaitsApproval, ChangedMeanwhile, ProofNeeded, SupervisionError
from supervision.models import Approval
from supervision.postgres import db

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class _Way:
    call: Callable[..., object]
    calls_services: bool


class _NeedsApproval(SupervisionError):
    """The operation is above the limit. Never seen outside this module."""

    code = "needs_approval"

    def __init__(self, operation: Operation, by: Actor, reason: str, stake: stakes.Money) -> None:
        self.operation, self.by, self.reason, self.stake = operation, by, reason, stake
        super().__init__(operation.verb)


class MoreAtStake(SupervisionError):
    """The verbs of a job would move more money together than was approved, or than may be moved without an approval."""

    code = "more_at_stake"


@dataclass
class Budget:
    """What the verbs of a job may move together. most: what was approved; None: as much as needs no approval. moved: so far."""

    most: stakes.Money | None
    moved: dict[str, Decimal]

    def after(self, stake: stakes.Money) -> dict[str, Decimal]:
        """What is moved with this amount."""
        return {currency: self.moved.get(currency, Decimal(0)) + stake.get(currency, Decimal(0)) for currency in {*self.moved, *stake}}

    def is_beyond(self, money: stakes.Money) -> bool:
        """Whether another operator has to approve first that so much is moved in all."""
        return stakes.exceeds(money) and (self.most is None or beyond(money, self.most))

    def take(self, stake: stakes.Money) -> None:
        """Count this amount. Raises MoreAtStake, and counts nothing, where it is too much."""
        if self.is_beyond(after := self.after(stake)):
            words = {"now": stakes.in_words(after)}
            raise MoreAtStake(_("%(now)s are at stake now. Resume the job to ask for another operator's approval.") % words)
        self.moved = after


class NotYet(Exception):
    """Raised by an executor that calls services: an earlier try may still be at work. The outbox tries again later."""


_ways: dict[str, _Way] = {}
_approved: ContextVar[Approval | None] = ContextVar("approved", default=None)
_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def executor(verb: str, *, calls_services: bool = False) -> Callable[[F], F]:
    """Register the function that carries out this verb once it is approved.

    It is called as `function(subject, by=, reason=, plan_version=, **arguments)`, with the arguments of the `Operation`.

    calls_services: it calls remote services, so it is carried out by the outbox after the approval, and may be repeated.
    """

    def register(function: F) -> F:
        _ways[verb] = _Way(function, calls_services)
        return function

    return register


def way_of(verb: str) -> _Way:
    """How this verb is carried out."""
    return _ways[verb]


def through(operation: Operation, *, by: Actor, reason: str) -> None:
    """Let the operation pass, or stop it because another operator has to approve it. Reads only.

    Raises NotPermitted where the account lacks the right to this verb, ProofNeeded where its session has to be proved again, and
    ChangedMeanwhile where more money is at stake than was approved; in a job MoreAtStake, see `within`.
    """
    rights.demand(by, operation.verb, [step.agent for step in operation.about])
    old = proof_is_old(by)
    if isinstance(by, Exempt) or not (conf.get().approval_above or old):
        return
    stake = stakes.stake_of(operation)
    if budget := _budget.get():
        budget.take(stake)
        return
    if old and stake:
        raise ProofNeeded(operation.verb)
    given = _approved.get()
    if given is not None and (given.verb, given.subject) == (operation.verb, operation.subject):
        most = {currency: Decimal(amount) for amount, currency in given.stake}
        if beyond(stake, most):
            words = {"now": stakes.in_words(stake), "then": stakes.in_words(most)}
            raise ChangedMeanwhile(_("%(now)s are at stake now; %(then)s were when it was asked for.") % words)
        return
    if stakes.exceeds(stake):
        raise _NeedsApproval(operation, by, reason, stake)


def beyond(stake: stakes.Money, most: stakes.Money) -> bool:
    """Whether one of the amounts is above that of its currency."""
    return any(amount > most.get(currency, Decimal(0)) for currency, amount in stake.items())


def proof_is_old(by: Actor) -> bool:
    """Whether this actor is an account in a session that was last proved too long ago to move money."""
    ask = None if isinstance(by, Exempt) else getattr(account_of(by), "proof_is_old", None)
    return bool(ask and ask())


def asking(work: Callable[[], T]) -> T:
    """Do the work of a verb. Raises AwaitsApproval where it was stopped: then the request is committed, and nothing else."""
    try:
        return work()
    except _NeedsApproval as stopped:
        need = stopped
        raise db.transact(lambda: ask(need.operation, need.stake, by=need.by, reason=need.reason)) from None


def reason_asked(reason: str) -> str:
    """The reason as it was given by the operator who asked: while an approved verb is carried out, without what the approval adds.

    A verb with an idempotency key compares this one, so that the same request is known again after its approval.
    """
    given = _approved.get()
    return reason if given is None else given.reason


@contextmanager
def carrying_out(row: Approval) -> Iterator[None]:
    """Let the approved operation pass the gate during the block, in this thread."""
    token = _approved.set(row)
    try:
        yield
    finally:
        _approved.reset(token)


@contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Let verbs pass the gate during the block, in this thread, as long as they move no more than this together."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def ask(operation: Operation, stake: stakes.Money, *, by: Actor, reason: str) -> AwaitsApproval:
    """Write the request, in the caller's transaction; the error that tells of it, for the caller to raise or to say."""
    number, expires = _ask(_NeedsApproval(operation, by, reason, stake))
    words = {"number": number, "amounts": stakes.in_words(stake), "until": f"{expires:%Y-%m-%d %H:%M} UTC"}
    message = _("Nothing is done yet: %(amounts)s are at stake. Another operator has to approve request %(number)s before %(until)s.")
    return AwaitsApproval(message % words, number)


# A request about an earlier state of the order can never be carried out any more, nor can one whose time is over.
_CLEAR = """
UPDATE supervision_approval
   SET state = CASE WHEN expires_at <= now() THEN 'expired' ELSE 'failed' END, decided_at = now(), outcome = %(why)s,
       arguments = arguments - ARRAY['amend', 'result', 'payload']
 WHERE verb = %(verb)s AND subject = %(subject)s AND state = 'pending'
   AND (expires_at <= now() OR plan_version <> %(plan_version)s)
"""
_ASK = """
INSERT INTO supervision_approval
       (verb, subject, order_key, run_id, step, arguments, stake, plan_version, identity, reason, asked_by, asked_by_id, expires_at)
SELECT %(verb)s, %(subject)s, %(order)s, %(run)s::bigint, %(step)s, %(arguments)s::jsonb, %(stake)s::jsonb, %(plan_version)s,
       %(identity)s, %(reason)s, %(by)s, %(account)s::bigint, now() + %(within)s::float8 * interval '1 s'
    ON CONFLICT (identity) WHERE state = 'pending' DO NOTHING
RETURNING id, expires_at
"""
_PENDING = "SELECT id, expires_at FROM supervision_approval WHERE identity = %(identity)s AND state = 'pending'"


def _ask(need: _NeedsApproval) -> tuple[int, Any]:
    """The request's number and its end: of a new one, or of the pending one that asks for the same."""
    operation, account = need.operation, account_of(need.by)
    arguments = json.dumps(dict(operation.arguments), sort_keys=True)
    version = operation.plan_version or ""
    facts = {
        "verb": operation.verb,
        "subject": operation.subject,
        "order": operation.order,
        "run": None if operation.run is None else operation.run.pk,
        "step": ", ".join(step.name for step in operation.about),
        "arguments": arguments,
        "stake": json.dumps([[str(amount), currency] for currency, amount in need.stake.items()]),
        "plan_version": version,
        "identity": hashlib.sha256(json.dumps([operation.verb, operation.subject, arguments, version]).encode()).hexdigest(),
        "reason": need.reason,
        "by": name_of(need.by),
        "account": None if account is None else account.pk,
        "within": conf.get().approval_within.total_seconds(),
        "why": _("The order has changed, and it was asked for anew."),
    }
    db.fetch(_CLEAR, facts)
    for _turn in range(3):
        if rows := db.fetch(_ASK, facts) or db.fetch(_PENDING, facts):
            return rows[0][0], rows[0][1]
    raise ChangedMeanwhile(_("The same request was decided at this moment. Look again."))  # three times in a row
