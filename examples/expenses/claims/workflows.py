"""The workflows of expense claims. The engine finds this module in each installed app.

A claim is checked. Then it is booked, while a manager decides about it if it is large. An approved claim is paid by a run of its
own. Every night a report counts what was paid.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.core.mail import send_mail
from django.db.models import Sum

from claims.models import Entry
from supervision import (
    Agent,
    ChildRun,
    OnPermanent,
    OnTimeout,
    PermanentFailure,
    RetryPolicy,
    Step,
    WaitForSignal,
    Workflow,
    parallel,
    plan,
    register,
    register_agent,
)
from supervision.intake.schedules import Schedule, register_schedule

SMALL = Decimal(100)  # claims up to this amount need no approval
UNDO = RetryPolicy(on_permanent=OnPermanent.COMPENSATE)


class Policy(Agent):
    """Applies the company's rules. It changes nothing, so there is nothing to undo."""

    name, undoable = "policy", False

    def perform(self, request):
        if request.step == "check":
            total = sum((Decimal(item["amount"]) for item in request.payload["items"]), Decimal(0))
            if total <= 0:
                raise PermanentFailure("the claim is empty")
            return {"total": str(total), "large": total > SMALL}
        decision = request.results.get("approval", {}).get("payload", {})
        if decision.get("approved") is False:
            raise PermanentFailure(f"{decision['by']} has refused it")
        return {"approved_by": decision.get("by", "the rules")}


class Books(Agent):
    """Books what the company owes, and pays it. The rows stand for another system that recognises a key."""

    name = "books"

    def perform(self, request):
        kind = {"book": "liability", "transfer": "payment"}[request.step]
        total = request.results["check"]["total"] if request.results else request.payload["total"]
        facts = {"kind": kind, "employee": request.payload["employee"], "amount": total}
        Entry.objects.get_or_create(key=request.idempotency_key, defaults=facts)
        return {"entry": request.idempotency_key}

    def compensate(self, request):
        Entry.objects.filter(key=request.perform_key).update(taken_back=True)
        return {}


class Report(Agent):
    """Counts what was paid."""

    name, undoable = "report", False

    def perform(self, request):
        paid = Entry.objects.filter(kind="payment", taken_back=False).aggregate(total=Sum("amount"))
        return {"paid": str(paid["total"] or 0)}


def is_large(claim):
    """Whether a manager decides about it."""
    return claim.results["check"]["large"]


def remind(request):
    """Ask the manager again. The mail goes out with the commit in which the step waits on."""
    send_mail("A claim waits for you", f"/claims/{request.run_key}/", None, ["manager@example.com"])


def payout(claim):
    """The payload of the run that pays."""
    return {"employee": claim.payload["employee"], "total": claim.results["check"]["total"]}


for agent in (Policy(), Books(), Report()):
    register_agent(agent)

APPROVAL = WaitForSignal(
    "approval",
    label="the manager's decision",
    within=timedelta(days=7),
    on_timeout=OnTimeout.COMPENSATE,
    remind_after=(timedelta(days=2), timedelta(days=5)),
    remind=remind,
    when=is_large,
    reads=("check",),
)
CLAIM = plan(
    Step("check", agent="policy"),
    parallel(Step("book", agent="books", reads=("check",)), APPROVAL),
    Step("decide", agent="policy", reads=("approval",), retry=UNDO),
    ChildRun("pay", workflow="payout", payload=payout, reads=("check",)),
)
register(Workflow("payout", (Step("transfer", agent="books"),)))
register(Workflow("expense-claim", CLAIM))
register(Workflow("report", (Step("count", agent="report"),)))
register_schedule(Schedule(name="nightly-report", workflow="report", cron="0 2 * * *", timezone="Europe/Berlin"))
