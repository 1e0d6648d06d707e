"""The operators' landing page: what needs an operator comes first, and every number links to its rows. Reads only.

Used through `UNFOLD` in the settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Max, Model, Q
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision import conf
from supervision.approvals import rights
from supervision.console.incident_rows import incident_rows
from supervision.console.pulse_charts import pulse
from supervision.console.shared import (
    COUNTED_UP_TO,
    STALE_AFTER,
    TONES,
    alert_count,
    count_up_to,
    list_address,
    may_operate,
    open_dead_letters,
    pause_address,
    resume_address,
    run_address,
    waiting_submissions,
)
from supervision.insight import directory, queries
from supervision.insight.autoscaling import loads
from supervision.models import Alert, DeadLetter, Heartbeat, LeaderLease, Pause, Resource, Run, Submission
from supervision.models.labels import RUN_LABELS
from supervision.operations import pauses
from supervision.operations.resource_limits import figures
from supervision.runtime.humanize import age_in_words, number
from supervision.states import FINAL_RUN_STATES, RunState

ALERTS_SHOWN = 8
PAUSES_READ, PAUSES_SHOWN = 200, 6
ROLES = {
    "supervisor": gettext_lazy("Supervisor"),
    "beat": gettext_lazy("Beat"),
    "scheduler": gettext_lazy("Scheduler"),
    "agents": gettext_lazy("Agents"),
}
BREAKER_TONES = {"closed": "success", "half-open": "warning", "open": "danger"}


@dataclass(frozen=True)
class SignOfLife:
    """One role's newest heartbeat."""

    role: str
    age: timedelta | None
    processes: int
    stale: bool


def signs_of_life() -> list[SignOfLife]:
    """The expected roles in their order, then all other roles that have a heartbeat."""
    seen: dict[str, tuple[timedelta, int]] = {}
    rows = Heartbeat.objects.values_list("role").annotate(
        age=ExpressionWrapper(Now() - Max("seen_at"), output_field=DurationField()),
        processes=Count("pk", filter=Q(seen_at__gte=Now() - STALE_AFTER)),
    )
    for role, age, processes in rows:
        name = role.partition("-")[0]  # "supervisor-sweep" is a supervisor at work
        other_age, others = seen.get(name, (age, 0))
        seen[name] = (min(age, other_age), processes + others)
    signs = []
    for name in [*ROLES, *sorted(set(seen) - set(ROLES))]:
        newest, alive = seen.get(name, (None, 0))
        stale = newest is None or newest > STALE_AFTER
        signs.append(SignOfLife(str(ROLES.get(name, name)), newest, alive, stale))
    return signs


def state_counts() -> list[dict[str, Any]]:
    """The runs in each state, those that need an operator first.

    Unfinished runs are few and counted exactly. Finished ones are many: they are counted among the newest runs only.
    """
    counts = queries.counts_by_state()
    newest = Counter(Run.objects.order_by("-pk").values_list("process_state", flat=True)[:COUNTED_UP_TO])
    cut = newest.total() == COUNTED_UP_TO
    order: Iterable[RunState] = (
        RunState.ERROR,
        RunState.PENDING,
        RunState.PROCESSING,
        RunState.COMPENSATING,
        RunState.PROCESSED,
        RunState.CANCELLED,
    )
    return [
        {
            "label": RUN_LABELS[state],
            "count": newest[state.value] if state in FINAL_RUN_STATES else counts.get(state.value, 0),
            "of": COUNTED_UP_TO if cut and state in FINAL_RUN_STATES else None,
            "tone": TONES[state],
            "address": list_address(process_state=state.value),
        }
        for state in order
    ]


def failing_steps() -> list[dict[str, Any]]:
    """Steps in Error by name, the most frequent first, with each one's share of the largest for its bar."""
    counts = sorted(queries.failing_steps().items(), key=lambda pair: (-pair[1], pair[0]))
    most = counts[0][1] if counts else 1
    return [
        {"name": name, "count": count, "share": max(4, round(100 * count / most)), "address": list_address(step=name)}
        for name, count in counts
    ]


def resource_rows() -> list[dict[str, Any]]:
    """Each resource with its calls in flight, its capacity, pause and breaker; those in trouble first."""
    rows = [
        {
            "name": row.name,
            "state": "paused" if row.paused else row.breaker_state,
            "label": _("paused") if row.paused else Resource.Breaker(row.breaker_state).label,
            "since": age_in_words(row.now - row.opened_at) if row.opened_at and not row.paused and row.breaker_state != "closed" else "",
            "tone": "warning" if row.paused else BREAKER_TONES[row.breaker_state],
            "in_flight": row.in_flight,
            "capacity": row.capacity,
            "full": row.full,
            "waiting": row.waiting,
            "address": reverse("admin:supervision_resource_change", args=[row.row_id]),
        }
        for row in figures()
    ]
    worst_first = ["open", "half-open", "paused", "closed"]
    return sorted(rows, key=lambda row: (worst_first.index(str(row["state"])), not row["full"], row["name"]))


def queue_rows(paused: Sequence[Pause] = ()) -> list[dict[str, Any]]:
    """Each agent's queue with links to its waiting, running and overdue steps, and to the page that pauses it."""
    held = {row.name for row in paused if row.scope == Pause.Scope.AGENT}
    return [
        {
            "agent": depth.agent,
            "paused": depth.agent in held,
            "pause": pause_address(Pause.Scope.AGENT, depth.agent, reverse("admin:index")),
            "consumers": depth.consumers,
            "recommended": depth.recommended_consumers,
            "oldest": age_in_words(depth.oldest_seconds) if depth.oldest_seconds else "",
            "numbers": [
                (label, number, list_address(at=f"{depth.agent}.{kind}"), kind == "overdue" and number)
                for label, kind, number in (
                    (_("waiting"), "waiting", depth.waiting),
                    (_("running"), "running", depth.running),
                    (_("overdue"), "overdue", depth.overdue),
                )
            ],
        }
        for depth in loads()
    ]


def _pauses(request: HttpRequest, held: Sequence[Pause]) -> list[tuple[Pause, str, str]]:
    names = directory.names(pause.name for pause in held if pause.scope == Pause.Scope.ORDER)
    return [(pause, pauses.label(pause.scope, names.get(pause.name, pause.name)), resume_address(pause.pk, request.path)) for pause in held]


def newest_alerts(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    names = directory.names(alert.run.key for alert in alerts)
    return [{"alert": alert, "address": run_address(alert.run_id), "name": names[alert.run.key]} for alert in alerts]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The landing page's context. An account that may not see runs gets no data."""
    may_view = request.user.has_perm("supervision.view_run")
    context.update(
        {
            "title": _("Incidents"),
            "may_view": may_view,
            "may_operate": may_operate(request),
            "may_acknowledge": rights.may(request.user, rights.INCIDENTS),
        }
    )
    if not may_view:
        return context
    overdue = queries.overdue_count()
    # Pauses that hold many orders come before pauses of one order.
    paused = sorted(pauses.active()[:PAUSES_READ], key=lambda held: held.scope == Pause.Scope.ORDER)
    context.update(
        {
            **incident_rows(),
            "pulse": pulse(request.GET.get("pulse")),
            "states": state_counts(),
            "tallies": [
                (_("overdue steps"), number(overdue), list_address(at="overdue"), overdue > 0),
                (_("open alerts"), *_tally(alert_count(request), Alert, "?open=yes")),
                (_("waiting submissions"), *_tally(count_up_to(waiting_submissions()), Submission, "?waiting=yes", calm=True)),
                (_("open dead letters"), *_tally(count_up_to(open_dead_letters()), DeadLetter, "?open=yes")),
            ],
            "alerts": newest_alerts(list(queries.open_alerts(ALERTS_SHOWN))),
            "failing": failing_steps(),
            "queues": queue_rows(paused),
            "resources": resource_rows(),
            "pauses": _pauses(request, paused[:PAUSES_SHOWN]),
            "more_pauses": len(paused) > PAUSES_SHOWN,
            "signs": signs_of_life(),
            "leases": LeaderLease.objects.annotate(left=ExpressionWrapper(F("expires_at") - Now(), output_field=DurationField())).order_by(
                "name"
            ),
            "sweep_every": conf.get().sweep_every,
        }
    )
    return context


def _tally(number: str, model: type[Model], query: str, *, calm: bool = False) -> tuple[str, str, bool]:
    meta = model._meta
    address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist") + query
    return number, address, not calm and number != "0"
