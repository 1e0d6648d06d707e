"""Functions that the console's pages share: links to runs, small queries, permissions; and a form field. Reads only.

The engine does not know which page shows a run. An application that shows runs on
a page of its own registers that page with `show_runs_at`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse

from supervision.incidents.lifecycle import INFO
from supervision.models import Alert, DeadLetter, Incident, Run, Submission
from supervision.runtime.humanize import age_in_words as age_in_words
from supervision.runtime.humanize import number
from supervision.runtime.retold import retold as retold
from supervision.states import RunState

COUNTED_UP_TO = 1000
STALE_AFTER = timedelta(seconds=60)
TONES = {
    RunState.PENDING: "neutral",
    RunState.PROCESSING: "info",
    RunState.PROCESSED: "success",
    RunState.ERROR: "danger",
    RunState.COMPENSATING: "warning",
    RunState.CANCELLED: "neutral",
}


# --- Where runs are shown ---------------------------------------------------------------------------------------------

_runs_at = "supervision_run"


def show_runs_at(url_prefix: str) -> None:
    """Let the console's links lead to another admin that is a `RunConsole`: `app_model`, as in its address names."""
    global _runs_at
    _runs_at = url_prefix


def list_address(**filters: Any) -> str:
    """The list of runs, filtered."""
    address = reverse(f"admin:{_runs_at}_changelist")
    return f"{address}?{urlencode(filters)}" if filters else address


def bulk_address(verb: str, **filters: Any) -> str:
    """The page that does this verb to all runs that the filters find."""
    return f"{reverse(f'admin:{_runs_at}_bulk', args=[verb])}?{urlencode(filters)}"


def run_address(run_id: int) -> str:
    """The page of one run."""
    return reverse(f"admin:{_runs_at}_of_run", args=[run_id])


def pause_address(scope: str, name: str = "", back: str = "") -> str:
    """The page that pauses this, with a reason. back: the page that it returns to."""
    said = {key: value for key, value in (("scope", scope), ("name", name), ("next", back)) if value}
    return f"{reverse('admin:supervision_pause_add')}?{urlencode(said)}"


def resume_address(pause_id: int, back: str = "") -> str:
    """The page that shows this pause and lifts it."""
    address = reverse("admin:supervision_pause_change", args=[pause_id])
    return f"{address}?{urlencode({'next': back})}" if back else address


# --- Small queries ----------------------------------------------------------------------------------------------------


def since(field: str) -> ExpressionWrapper:
    """The age of a column by the database's clock."""
    return ExpressionWrapper(Now() - F(field), output_field=DurationField())


def count_up_to(rows: QuerySet[Any], limit: int = COUNTED_UP_TO) -> str:
    """A number for display whose cost is bounded: `1,000+` says that there are more."""
    found = rows.order_by().values("pk")[: limit + 1].count()
    return f"{number(limit)}+" if found > limit else number(found)


def open_alerts(alerts: QuerySet[Alert] | None = None) -> QuerySet[Alert]:
    """Those of these alerts that wait for an operator.

    One of severity info waits for a customer, and an acknowledged one has its operator."""
    every = Alert.objects.all() if alerts is None else alerts
    return every.filter(closed_at__isnull=True, acknowledged_at__isnull=True).exclude(severity=INFO)


def stopped_for_operators(listed: Q) -> QuerySet[Run]:
    """The runs in Error that wait for an operator, by the rule of `open_alerts`. listed: which runs the list has."""
    return Run.objects.filter(listed, process_state=RunState.ERROR, pk__in=open_alerts().values("run_id"))


def count_alerts(request: Any) -> str:
    """How many of them there are, which `alert_count` then knows for the rest of this request."""
    request.open_alert_count = found = count_up_to(open_alerts())
    return found


def alert_count(request: Any) -> str:
    """How many the side bar has counted for this page."""
    return getattr(request, "open_alert_count", None) or count_alerts(request)


def open_incidents() -> QuerySet[Incident]:
    return Incident.objects.filter(closed_at__isnull=True)


def waiting_incidents() -> QuerySet[Incident]:
    """The open incidents that wait for an operator. Those of severity info wait for customers."""
    return open_incidents().exclude(severity=INFO)


def open_dead_letters() -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(resolved_at__isnull=True)


def waiting_submissions() -> QuerySet[Submission]:
    return Submission.objects.filter(consumed_at__isnull=True)


def person(request: HttpRequest) -> AbstractBaseUser:
    """The account that acts. The admin requires a login, so there always is one."""
    return cast(AbstractBaseUser, request.user)


def may_operate(request: HttpRequest) -> bool:
    """Whether this account may act, not only view."""
    return request.user.has_perm("supervision.operate")


# --- Forms ----------------------------------------------------------------------------------------------------------------


class LinesField(forms.CharField):
    """Text of several lines. A browser counts the end of a line as one character, as here, and sends two."""

    def to_python(self, value: Any) -> Any:
        """The text with the ends of its lines as one character."""
        return (super().to_python(value) or "").replace("\r\n", "\n")
