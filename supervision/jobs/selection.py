"""The orders of a job: found by the filters of the list of orders, or chosen one by one; and what a verb would do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from supervision.agent import agents
from supervision.errors import DefinitionError, Refused, UnreadableSubmission
from supervision.incidents import lifecycle
from supervision.insight import directory
from supervision.jobs import job_sql
from supervision.models import Run
from supervision.postgres import db
from supervision.workflow import version_of

VERBS = ("resubmit", "cancel", "compensate", "skip", "abandon")
MOST_ORDERS = 100_000
MOST_GROUPS = 50


class Seen(NamedTuple):
    """An order that an operator has chosen, with the attempt and the step in Error that were shown; without them, as it is."""

    key: str
    attempt: int | None = None
    step: str = ""


@dataclass(frozen=True)
class Chosen:
    """Runs, with the attempt and the step that were shown of each (None: as they are then), and a step's name, or nothing."""

    runs: Sequence[int]
    seen: Sequence[int | None]
    step: str = ""
    at: Sequence[str | None] = ()

    @property
    def params(self) -> dict[str, Any]:
        """For the statements."""
        at = list(self.at) or [None] * len(self.runs)
        return {"runs": list(self.runs), "seen": list(self.seen), "at": at, "step": self.step}


@dataclass(frozen=True)
class Group:
    """Orders that the verb treats alike. steps: those that it runs again, skips or undoes. key_reused: the service has seen their keys."""

    orders: int
    workflow: str
    version: int
    process_state: str
    direction: str
    steps: Sequence[str]
    key_reused: bool
    error_code: str
    held: Sequence[tuple[str, Decimal]]
    runs: Sequence[int]


@dataclass(frozen=True)
class Preview:
    """What a job would be about. left_out: orders that were chosen, and on which the verb cannot act."""

    orders: int
    left_out: int
    held: Sequence[tuple[str, Decimal]]
    differ: Sequence[Group]


def check_verb(verb: str) -> None:
    """Raises Refused where jobs do not know this verb."""
    if verb not in VERBS:
        raise Refused(_("A job does one of these: %(verbs)s.") % {"verbs": ", ".join(VERBS)}, "unknown_verb")


def by_filter(given: Mapping[str, Any]) -> Chosen:
    """The orders that these filters find. Raises BadFilter, and Refused where there is no filter, or too many orders."""
    filters = directory.current().filters
    values = filters.read(given)
    if not values:
        raise Refused(_("Name at least one filter: a job for every order is never meant."), "filter_required")
    rows = filters.narrowed(filters.rows(), values).order_by()
    return of_runs(rows.values_list(filters.run, flat=True), str(values.get("step", "")))


def of_runs(found: Any, step: str = "") -> Chosen:
    """These runs, by id: a list or a query. step: what their filter says of it. Raises Refused where they are too many."""
    runs = sorted(set(found[: MOST_ORDERS + 1]) - {None})
    if len(runs) > MOST_ORDERS:
        raise Refused(_("More than %(most)d orders fit these filters. Narrow them.") % {"most": MOST_ORDERS}, "too_many_orders")
    return Chosen(runs, [None] * len(runs), step)


def one_by_one(chosen: Sequence[Seen]) -> Chosen:
    """These orders, each as the operator saw it."""
    seen = {one.key: one for one in chosen}
    runs = list(Run.objects.filter(key__in=list(seen)).order_by("pk").values_list("pk", "key"))
    shown = [seen[key] for _pk, key in runs]
    return Chosen([pk for pk, _key in runs], [one.attempt for one in shown], at=[one.step or None for one in shown])


def preview(verb: str, chosen: Chosen, changes: Mapping[str, Any] | None = None) -> Preview:
    """What the verb would do to these orders, in groups. Raises Refused where the verb, or a correction, is not possible."""
    check_verb(verb)
    undoable = [agent.name for agent in agents() if agent.undoable]
    groups = []
    for workflow, version, state, direction, names, reused, code, count, runs in db.run(
        job_sql.preview(verb), {**chosen.params, "undoable": undoable}
    ):
        groups.append(
            Group(count, workflow, version, state, direction, tuple(names), bool(reused), code or "", lifecycle.held(runs), tuple(runs))
        )
    check_changes(verb, changes or {}, {(group.workflow, group.version) for group in groups})
    orders = sum(group.orders for group in groups)
    held: dict[str, Decimal] = {}
    for group in groups:
        for currency, amount in group.held:
            held[currency] = held.get(currency, Decimal(0)) + amount
    return Preview(orders, len(chosen.runs) - orders, sorted(held.items()), groups)


def check_changes(verb: str, changes: Mapping[str, Any], versions: set[tuple[str, int]]) -> None:
    """Raise Refused where these corrections of the payloads make no sense for orders of these workflows."""
    if not changes:
        return
    if verb != "resubmit":
        raise Refused(_("Only a resubmission may change orders."), "changes_not_possible")
    for workflow, version in versions:
        try:
            version_of(workflow, version).intake.check_amendment(changes)
        except (UnreadableSubmission, DefinitionError) as error:
            raise Refused(str(error), "invalid_amendment") from error
