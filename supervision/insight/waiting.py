"""Why an order is waiting, in one sentence; None while it moves or has ended.

For screens, the API and commands. `inside`: the sentence is for operators and says which operator has paused the order and
why. Without it the sentence names no person and repeats nothing that an operator wrote.

The sentence gives the cause that holds the order up even if all later causes were gone: Error before pause, pause before
session, session before cool-down, cool-down before the resource, the resource before the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.agent import agents
from supervision.dispatch import partitions
from supervision.errors import DefinitionError
from supervision.governance import resources
from supervision.insight.waiting_facts import ALIVE_SECONDS, COUNTED_UP_TO, Pausing, Remote, Where, World, orders, unconsumed, world
from supervision.operations.pauses import label
from supervision.runtime.humanize import age_in_words, clock, number
from supervision.states import ProcessState, RunState
from supervision.workflow import version_of

SCHEDULER_QUEUE, SUBMISSIONS_QUEUE = "scheduler", "submissions"
_PAUSE_ORDER = ("order", "all", "workflow", "agent")


def why_waiting(run_ids: Sequence[int], *, inside: bool = True) -> dict[int, str | None]:
    """One sentence for each of these runs, in two statements for any number of runs."""
    found: dict[int, str | None] = dict.fromkeys(run_ids)
    standing = orders(run_ids) if run_ids else []
    if standing:
        seen = world()
        found.update({where.run_id: _sentence(where, seen, inside) for where in standing})
    return found


def why_unconsumed(keys: Sequence[str]) -> dict[str, str | None]:
    """The same for accepted orders that have no run yet, by public id."""
    found: dict[str, str | None] = dict.fromkeys(keys)
    rows = unconsumed(keys)
    if rows:
        silence = _silence(world(), SUBMISSIONS_QUEUE)
        for key, _now, cancelled, before in rows:
            if silence:
                found[key] = _("It is accepted and waits to be taken up: %(silence)s.") % {"silence": silence}
            elif cancelled:
                found[key] = _("Its cancellation waits to be taken up.")
            else:
                found[key] = _("It is accepted and waits to be taken up: %(turn)s.") % {"turn": _turn(before, before)}
    return found


def _sentence(where: Where, seen: World, inside: bool) -> str | None:
    step = {"step": where.step}
    if where.process_state == ProcessState.ERROR:
        if where.for_customer:
            return _("%(step)s is in error and waits for the customer, not for an operator.") % step
        return _("%(step)s is in error and waits for an operator.") % step
    if where.process_state == ProcessState.PROCESSING:
        return _on_its_way(where, seen)
    if where.awaits is not None:
        return _asleep(where)
    held = _pause_of(where, seen)
    if held is not None:
        return _paused(held, inside)
    if lacking := seen.unknown.get(f"unknown_version:{where.workflow}:{where.version}"):
        return _("%(step)s waits for its turn: %(why)s.") % {**step, "why": lacking}
    if where.session_ahead:
        return _behind(where, seen)
    if where.other_runs:
        return _("%(step)s is undone as soon as the step that is still running has ended.") % step
    remotes = _remotes_of(where, seen)
    if trouble := _outage(remotes, where.now):
        return trouble
    if where.not_before is not None and where.not_before > where.now and where.last_error:
        if where.failure_count:
            return _cooling(where)
        if where.failing_since is not None:
            return _unjudged(where)
    if limit := _limit(remotes):
        return limit
    if where.not_before is not None and where.not_before > where.now:
        return _("%(step)s is postponed until %(until)s.") % {**step, "until": clock(where.not_before)}
    if silence := _silence(seen, SCHEDULER_QUEUE):
        return _("%(step)s waits for its turn: %(silence)s.") % {**step, "silence": silence}
    if where.not_before is None:
        return _("%(step)s waits for its turn.") % step
    return _("%(step)s waits for its turn: %(turn)s.") % {**step, "turn": _turn(where.before, where.known_due)}


# --- A step that is claimed ---------------------------------------------------------------------------------------


def _on_its_way(where: Where, seen: World) -> str | None:
    if where.complete_by is not None and where.complete_by < where.now:
        return _("%(step)s gave no answer in time and waits for the supervisor.") % {"step": where.step}
    if where.started_at is not None:
        return None
    facts = {"step": where.step, "since": clock(where.claimed_at)}
    if silence := _silence(seen, _queue_of(where)):
        return _("%(step)s waits for a worker since %(since)s: %(silence)s.") % {**facts, "silence": silence}
    return _("%(step)s waits for a worker since %(since)s.") % facts


def _silence(seen: World, queue: str) -> str:
    """Says that no process consumes this queue; empty while a process does."""
    age = seen.consumers.get(queue)
    if age is None:
        return _("no process that serves the queue %(queue)s has been seen") % {"queue": queue}
    if age <= ALIVE_SECONDS:
        return ""
    return _("no process that serves the queue %(queue)s has been seen for %(age)s") % {"queue": queue, "age": age_in_words(age)}


def no_workers() -> list[str]:
    """One sentence for each role of which no process is alive, of those that an order needs to go on."""
    seen = world().consumers
    serving = {
        "scheduler": [age for queue, age in seen.items() if queue in (SCHEDULER_QUEUE, SUBMISSIONS_QUEUE)],
        "agents": [age for queue, age in seen.items() if queue.startswith("agent.")],
    }
    return [
        _("no process of the role %(role)s has been seen for %(age)s") % {"role": role, "age": age_in_words(min(ages))}
        if ages
        else _("no process of the role %(role)s has ever been seen") % {"role": role}
        for role, ages in serving.items()
        if not ages or min(ages) > ALIVE_SECONDS
    ]


def _queue_of(where: Where) -> str:
    agent = next((agent for agent in agents() if agent.name == where.agent), None)
    if agent is None:
        return f"agent.{where.agent}"
    number = partitions.count(agent)
    return agent.queue if number == 1 else f"{agent.queue}.{partitions.number_of(where.partition or where.key, number)}"


# --- A step that waits for a signal or for a moment ---------------------------------------------------------------


def _asleep(where: Where) -> str:
    facts = {"step": where.step, "until": clock(where.awaits_until), "what": where.awaits}
    if not where.awaits:
        return _("%(step)s waits until %(until)s.") % facts
    if where.children is not None:
        return _for_children(where, where.children)
    if label := _label_of_wait(where):
        return _("%(step)s waits for %(what)s until %(until)s.") % {**facts, "what": label}
    return _("%(step)s waits for the signal %(what)s until %(until)s.") % facts


def _for_children(where: Where, found: Mapping[str, Any]) -> str:
    facts = {"step": where.step, "key": found["key"], "count": number(found["count"]), "failed": found["failed"], "at": found["step"]}
    if found["count"] > 1 and found["errors"]:
        words = _("%(step)s waits for %(count)s child runs; %(errors)s of them are in Error, the first is %(failed)s at step %(at)s.")
        return words % {**facts, "errors": number(found["errors"])}
    if found["count"] > 1:
        return _("%(step)s waits for %(count)s child runs.") % facts
    if found["errors"]:
        return _("%(step)s waits for child %(failed)s, which is in Error at step %(at)s.") % facts
    return _("%(step)s waits for child %(key)s.") % facts if found["key"] else _("%(step)s waits for its child runs.") % facts


def _label_of_wait(where: Where) -> str:
    try:
        return version_of(where.workflow, where.version).step(where.position).label
    except (DefinitionError, IndexError):
        return ""


# --- A step that may not be claimed -------------------------------------------------------------------------------


def _pause_of(where: Where, seen: World, run_id: int | None = None) -> Pausing | None:
    run_id = run_id or where.run_id
    names = {"all": "", "workflow": where.workflow, "agent": where.agent}
    held = [
        pausing
        for pausing in seen.pauses
        if (pausing.run_id == run_id if pausing.scope == "order" else names.get(pausing.scope) == pausing.name)
    ]
    return min(held, key=lambda pausing: _PAUSE_ORDER.index(pausing.scope), default=None)


def _paused(held: Pausing, inside: bool) -> str:
    what = _("The order") if held.scope == "order" else label(held.scope, held.name)
    facts = {"what": what, "who": held.paused_by, "why": held.reason, "since": clock(held.paused_at), "until": clock(held.until)}
    if inside and held.until is not None:
        return _("%(what)s is paused by %(who)s until %(until)s: %(why)s") % facts
    if inside:
        return _("%(what)s is paused by %(who)s since %(since)s, until an operator resumes it: %(why)s") % facts
    if held.until is not None:
        return _("%(what)s is paused until %(until)s.") % facts
    return _("%(what)s is paused since %(since)s.") % facts


def _behind(where: Where, seen: World) -> str:
    ahead = where.session_ahead or 0
    facts = {"n": _bounded(ahead), "key": where.session_head, "step": where.session_head_step}
    if where.session_head_state == RunState.ERROR:
        return ngettext(
            "It waits behind %(n)s order of its session, %(key)s, whose %(step)s is in error and waits for an operator.",
            "It waits behind %(n)s orders of its session; the first of them, %(key)s, has %(step)s in error and waits for an operator.",
            ahead,
        ) % facts  # fmt: skip
    held = _pause_of(where, seen, where.session_head_id)
    if held is not None and held.scope == "order":
        return ngettext(
            "It waits behind %(n)s order of its session, %(key)s, which is paused.",
            "It waits behind %(n)s orders of its session; the first of them, %(key)s, is paused.",
            ahead,
        ) % facts  # fmt: skip
    return ngettext(
        "It waits behind %(n)s order of its session: they run one after another.",
        "It waits behind %(n)s orders of its session: they run one after another.",
        ahead,
    ) % facts  # fmt: skip


def _unjudged(where: Where) -> str:
    return _("%(step)s fails since %(since)s and is tried again at %(until)s; nothing tells yet whose fault it is: %(error)s.") % {
        "step": where.step, "since": clock(where.failing_since), "until": clock(where.not_before),
        "error": _error(where),
    }  # fmt: skip


def _error(where: Where) -> str:
    return " ".join((where.last_error or "").split())[:200].rstrip(" .")


def _cooling(where: Where) -> str:
    facts = {
        "step": where.step, "until": clock(where.not_before), "n": where.failure_count, "error": _error(where),
    }  # fmt: skip
    return ngettext(
        "%(step)s cools down until %(until)s after %(n)d failure: %(error)s.",
        "%(step)s cools down until %(until)s after %(n)d failures, the last: %(error)s.",
        where.failure_count,
    ) % facts  # fmt: skip


# --- The resource -------------------------------------------------------------------------------------------------


def _remotes_of(where: Where, seen: World) -> list[Remote]:
    """The resources that may serve this step: the one it is bound to or routed to, else all of its service."""
    service = seen.services.get(where.agent)
    members = seen.serving.get(service, []) if service is not None else []
    chosen = service if where.home else where.bound
    if chosen is None and service is not None and seen.routes:
        partition = where.partition or resources.partition_of(where.key)
        chosen = seen.routes.get((service, partition)) or seen.routes.get((service, resources.ANY_PARTITION))
    return [remote for remote in members if remote.name == chosen] or members


def _outage(remotes: Sequence[Remote], now: datetime) -> str:
    """Why none of these resources takes calls, apart from limits; empty if one of them does."""
    if not remotes or any(remote.breaker == "closed" and not remote.paused for remote in remotes):
        return ""
    names = ", ".join(remote.name for remote in remotes)
    if all(remote.paused for remote in remotes):
        return ngettext("%(names)s is paused by an operator.", "%(names)s are paused by an operator.", len(remotes)) % {"names": names}
    down = [remote for remote in remotes if remote.breaker != "closed"]
    began = min((remote.opened_at for remote in down if remote.opened_at), default=None)
    facts = {"names": ", ".join(remote.name for remote in down), "since": clock(began), "age": age_in_words(_age(began, now))}
    again = min((remote.retry_at for remote in down if remote.retry_at and remote.breaker == "open"), default=None)
    if again is not None and again > now:
        return _("%(names)s does not answer: its breaker is open since %(since)s (for %(age)s), next tried at %(again)s.") % {
            **facts, "again": clock(again),
        }  # fmt: skip
    return _("%(names)s does not answer: its breaker is open since %(since)s (for %(age)s), and is being tried out again.") % facts


def _limit(remotes: Sequence[Remote]) -> str:
    """The limits that are reached at the resources that take calls; empty if one of them has room."""
    taking = [remote for remote in remotes if remote.breaker == "closed" and not remote.paused]
    if not taking:
        return ""
    if all(remote.full for remote in taking):
        parts = [
            _("%(name)s (%(in_flight)d of %(capacity)d calls are under way)")
            % {"name": remote.name, "in_flight": remote.in_flight, "capacity": remote.capacity}
            for remote in taking
        ]
        return _("No slot is free at %(where)s.") % {"where": ", ".join(parts)}
    if all(remote.full or (remote.rate is not None and remote.ahead) for remote in taking):
        parts = [
            _("%(name)s takes %(rate)s calls a second") % {"name": remote.name, "rate": number(remote.rate)}
            for remote in taking
            if remote.rate is not None
        ]
        return _("It waits for the rate limit: %(limits)s.") % {"limits": ", ".join(parts)}
    return ""


# --- Small words --------------------------------------------------------------------------------------------------


def _turn(before: int | None, known: int) -> str:
    if before is None:
        return _("more than %(n)s orders are before it") % {"n": _bounded(max(known - 1, 0))}
    if before > COUNTED_UP_TO:
        return _("more than %(n)s orders are before it") % {"n": number(COUNTED_UP_TO)}
    if not before:
        return _("it is the next")
    return ngettext("%(n)s order is before it", "%(n)s orders are before it", before) % {"n": _bounded(before)}


def _bounded(count: int) -> str:
    words = number(min(count, COUNTED_UP_TO))
    return f"{words}+" if count > COUNTED_UP_TO else words


def _age(since: datetime | None, now: datetime) -> timedelta:
    return timedelta(0) if since is None else now - since
