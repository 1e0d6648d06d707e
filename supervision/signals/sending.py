"""Sends signals to runs. A signal is accepted when its row is committed; the run takes it when a step waits for it.

In the caller's transaction the signal commits with the caller's own changes. It may come before anything waits for it, also
before the run exists. Repeating a signal under its key changes nothing.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from supervision.errors import DefinitionError, Refused, UnknownRun, UnreadableSubmission
from supervision.plans import personal
from supervision.postgres import db
from supervision.store import sleeping
from supervision.wakeup import hints
from supervision.workflow import KeptSignal, Workflow, newest, version_of, versions_of

MOST_PAYLOAD_BYTES = 65_536
MOST_KEY = 255
MOST_SIGNALS = 1000  # of one run
MOST_BEFORE_A_CLIENTS = 500  # of one run: its client sends no more then, and the rest is for operators and programs
MOST_DEPTH = 64
MOST_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class NewSignal:
    """One signal. run: the run's key. key: the sender's own for this signal; the same signal sent again has the same key.

    by_client: the client that submitted the run sends it.
    """

    run: str
    name: str
    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    sent_by: str = ""
    reason: str = ""
    by_client: bool = False


class Sent(StrEnum):
    """What became of a signal."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it was accepted before, under this key
    LATE = "late"  # it is kept and shown, but no step of the run waits for it any more, so it changes nothing
    UNKNOWN_RUN = "unknown_run"
    ENDED = "ended"  # or is being undone
    NOT_AWAITED = "not_awaited"  # no step of the run's workflow waits for a signal of this name
    KEY_REUSED = "key_reused"  # another payload was accepted under this key
    TOO_MANY = "too_many"


def send_signal(
    run: str,
    name: str,
    payload: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    sent_by: str = "",
    reason: str = "",
    by_client: bool = False,
) -> Sent:
    """Send one signal; returns `accepted`, `repeated` where it has come before under this key, or `late`.

    `late` means that the signal is kept, but no step of the run waits for it any more: it changes nothing. `told` says so in words.
    key: without one, each call sends another signal. by_client: the client that submitted the run sends it.
    Raises UnknownRun; Refused if the run has ended or is being undone, if its workflow does not wait for such a signal, if the key was
    used with another payload, if the run has too many signals, or if the payload cannot be kept.
    """
    key = key or secrets.token_urlsafe(16)
    signal = NewSignal(run=run, name=name, key=key, payload=payload or {}, sent_by=sent_by, reason=reason, by_client=by_client)
    [outcome] = send_all([signal])
    if outcome == Sent.UNKNOWN_RUN:
        raise UnknownRun(run)
    if outcome == Sent.NOT_AWAITED:
        raise Refused(_not_awaited(run, name), f"signal_{outcome}")
    refusals = {
        Sent.ENDED: _("The order has ended, or is being undone, and takes no signal any more."),
        Sent.TOO_MANY: _("The order has %(most)d signals and takes no more.") % {"most": _most(signal)},
        Sent.KEY_REUSED: _("Another signal was sent under this key."),
    }
    if outcome in refusals:
        raise Refused(refusals[outcome], f"signal_{outcome}")
    return outcome


def _not_awaited(run: str, name: str) -> str:
    """Says so, and which signals the steps of this run's workflow wait for."""
    said = _("No step of this order waits for a signal named %(name)s.") % {"name": name}
    [(workflow, version)] = db.fetch(_WORKFLOW, {"key": run})
    known = versions_of(workflow) if version is None else [version_of(workflow, version)]
    names = ", ".join(sorted({name for each in known for name in each.signals}))
    return f"{said} {_('Its signals: %(names)s.') % {'names': names} if names else _('It waits for no signal.')}"


def _most(signal: NewSignal) -> int:
    """How many signals the run may have before this one."""
    return MOST_BEFORE_A_CLIENTS if signal.by_client else MOST_SIGNALS


def told(run: str, outcome: Sent) -> str:
    """What this outcome means for the run, in words: whether the signal is kept, and what has to happen if the run is in Error."""
    words = {
        Sent.ACCEPTED: _("The signal is kept for the step that waits for it."),
        Sent.REPEATED: _("The signal had come before under this key: nothing has changed."),
        Sent.LATE: _("The signal is kept, but no step of the order waits for it any more: it changes nothing."),
    }
    failed = [row[0] for row in db.fetch(_FAILED, {"key": run})]
    if not failed:
        return words[outcome]
    stands = _("The order is in Error at %(steps)s, and goes on when that is resubmitted.") % {"steps": ", ".join(failed)}
    return f"{words[outcome]} {stands}"


def send_all(signals: Sequence[NewSignal]) -> list[Sent]:
    """Send up to MOST_AT_ONCE signals in one transaction; returns what became of each, in order.

    Raises Refused if there are more, because each run takes a lock, or if a payload or key cannot be kept.
    """
    if len(signals) > MOST_AT_ONCE:
        raise Refused(_("At most %(most)d signals are sent at once.") % {"most": MOST_AT_ONCE}, "signal_batch")
    bodies = [_body(signal) for signal in signals]
    outcomes, woken = db.transact(lambda: _send(signals, bodies))
    if woken:
        hints.send(hints.SCHEDULE)
    return outcomes


def was_sent(run: str, name: str, key: str | None) -> bool:
    """Whether a signal has come under this key: the same signal sent again changes nothing, and another one is refused."""
    identity = (run, name, key or "")
    return bool(key) and all(map(_storable, identity)) and bool(db.fetch(_KNOWN, _arrays([identity])))


def _body(signal: NewSignal) -> str:
    """The payload as JSON text that PostgreSQL can keep."""
    if not isinstance(signal.payload, Mapping):
        raise Refused(_("The payload must be a JSON object."), "signal_payload")
    try:
        text = json.dumps(signal.payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Refused(_("The payload is no JSON: %(problem)s.") % {"problem": problem}, "signal_payload") from problem
    if len(text) > MOST_PAYLOAD_BYTES:
        facts = {"size": len(text), "most": MOST_PAYLOAD_BYTES}
        raise Refused(_("The payload has %(size)d bytes, at most %(most)d are kept.") % facts, "signal_payload")
    if not _depth_fits(signal.payload):
        raise Refused(_("The payload is nested more than %(most)d deep.") % {"most": MOST_DEPTH}, "signal_payload")
    if "\\u0000" in text or not _storable(json.dumps(signal.payload, ensure_ascii=False)):
        raise Refused(_("The payload has characters that cannot be kept."), "signal_payload")
    if not 0 < len(signal.key) <= MOST_KEY or not all(map(_storable, (signal.key, signal.run, signal.name, signal.sent_by, signal.reason))):
        raise Refused(_("A signal's key has 1 to %(most)d characters that can be kept.") % {"most": MOST_KEY}, "signal_key")
    return text


def _storable(text: str) -> bool:
    """Whether PostgreSQL can keep this text: no NUL, no lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _depth_fits(payload: Any) -> bool:
    level = [payload]
    for _level in range(MOST_DEPTH):
        level = [part for each in level for part in (each.values() if isinstance(each, Mapping) else each) if _holds(part)]
        if not level:
            return True
    return False


def _holds(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


_WORKFLOW = """
SELECT workflow, version FROM supervision_run WHERE key = %(key)s
UNION ALL
SELECT workflow, NULL FROM supervision_submission
 WHERE public_id = %(key)s AND NOT EXISTS (SELECT FROM supervision_run WHERE key = %(key)s)
"""
_COUNT = "(SELECT count(*) FROM (SELECT FROM supervision_signal g WHERE g.run_key = {key} LIMIT %(most)s) g)"
_RUNS = f"""
SELECT r.key, r.id, r.workflow, r.version,
       r.process_state IN ('Processed', 'Cancelled') OR (r.direction = 'undo' AND r.resume_from IS NULL),
       ARRAY(SELECT s.position FROM supervision_stepstate s
              WHERE s.run_id = r.id AND s.direction = 'do'
                AND s.process_state || '' IN ('Pending', 'Processing', 'Error')),
       r.resume_from, NULL::smallint, {_COUNT.format(key="r.key")}
  FROM supervision_run r WHERE r.key = ANY (%(keys)s::text[])
UNION ALL
SELECT u.public_id, NULL, u.workflow, NULL,
       coalesce(u.consumed_at IS NOT NULL AND (SELECT bool_and(d.resolved_at IS NOT NULL) FROM supervision_deadletter d
                                                WHERE d.public_id = u.public_id), false), NULL, NULL,
       (SELECT max(w.version) FROM supervision_workflowversion w WHERE w.name = u.workflow), {_COUNT.format(key="u.public_id")}
  FROM supervision_submission u
 WHERE u.public_id = ANY (%(keys)s::text[]) AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = u.public_id)
"""  # noqa: S608 - our own expressions
_FAILED = """
SELECT s.name FROM supervision_run r
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = r.direction AND s.process_state || '' = 'Error'
 WHERE r.key = %(key)s AND r.process_state = 'Error' ORDER BY s.position
"""
_ARCHIVED = "SELECT key, body->'signals' FROM supervision_archivedrun WHERE key = ANY (%(keys)s::text[])"
_KNOWN = """
SELECT g.run_key, g.name, g.key, g.payload
  FROM unnest(%(runs)s::text[], %(names)s::text[], %(keys)s::text[]) v(run_key, name, key)
  JOIN supervision_signal g ON g.run_key = v.run_key AND g.name = v.name AND g.key = v.key
"""
_INSERT = """
INSERT INTO supervision_signal (run_key, name, key, payload, sent_by, reason)
SELECT run_key, name, key, payload, sent_by, reason
  FROM unnest(%(runs)s::text[], %(names)s::text[], %(keys)s::text[], %(payloads)s::jsonb[], %(senders)s::text[], %(reasons)s::text[])
       WITH ORDINALITY v(run_key, name, key, payload, sent_by, reason, n)
 ORDER BY n
ON CONFLICT (run_key, name, key) DO NOTHING
RETURNING run_key, name, key
"""
Identity = tuple[str, str, str]


class _Seen(NamedTuple):
    """An order that a signal is sent to. Without a run it has no version and no steps yet.

    ended: its run has ended or is being undone, or its dead letter was discarded. open: the positions of its open steps.
    latest: without a run, the last version of its workflow that any process has registered.
    """

    run_id: int | None
    workflow: str | None
    version: int | None
    ended: bool
    open: Sequence[int]
    resume_from: int | None
    latest: int | None
    signals: int


_UNKNOWN = _Seen(None, None, None, False, (), None, None, 0)


def _send(signals: Sequence[NewSignal], bodies: Sequence[str]) -> tuple[list[Sent], int]:
    """What became of each signal, and how many steps they woke. It tells the workflows of the signals that it has kept."""
    identities: list[Identity] = [(signal.run, signal.name, signal.key) for signal in signals]
    outcomes, runs, known, definitions = _judged(signals)
    chosen = {identity: number for number, identity in reversed(list(enumerate(identities))) if outcomes[number] in KEPT}
    picked = sorted(chosen.values())
    written: set[Identity] = set()
    woken = 0
    if picked:
        people = {"senders": [signals[n].sent_by for n in picked], "reasons": [signals[n].reason for n in picked]}
        facts = {**_arrays([identities[n] for n in picked]), "payloads": [bodies[n] for n in picked], **people}
        awaited = sorted({(runs[signals[n].run], signals[n].name) for n in picked if signals[n].run in runs})
        rows, *steps = db.fetch_together((_INSERT, facts), *([sleeping.waking(awaited)] if awaited else []))
        written, woken = set(rows), sleeping.woken(*steps) if steps else 0
        _tell([(signals[n], outcomes[n] == Sent.LATE) for n in picked if identities[n] in written], definitions)
    repeated = [number for number, identity in enumerate(identities) if not (identity in written and chosen.get(identity) == number)]
    if repeated:
        rows = db.fetch(_KNOWN, _arrays([identities[number] for number in repeated]))
        known |= {(run, name, key): payload for run, name, key, payload in rows}
    for number in repeated:
        if (identity := identities[number]) in known:
            outcomes[number] = Sent.REPEATED if personal.same(known[identity], json.loads(bodies[number])) else Sent.KEY_REUSED
    return outcomes, woken


def _tell(kept: Sequence[tuple[NewSignal, bool]], definitions: Mapping[str, Workflow]) -> None:
    """Call the `on_signal` of each workflow with the signals of its runs."""
    told: dict[Callable[[Sequence[KeptSignal]], None], list[KeptSignal]] = {}
    for signal, late in kept:
        if (known := definitions.get(signal.run)) is not None and known.on_signal is not None:
            told.setdefault(known.on_signal, []).append(KeptSignal(key=signal.run, name=signal.name, payload=signal.payload, late=late))
    for hook, its in told.items():
        hook(its)


KEPT = (Sent.ACCEPTED, Sent.LATE)


def _arrays(identities: Sequence[Identity]) -> dict[str, list[str]]:
    return {name: [identity[place] for identity in identities] for place, name in enumerate(("runs", "names", "keys"))}


def _judged(signals: Sequence[NewSignal]) -> tuple[list[Sent], dict[str, int], dict[Identity, Any], dict[str, Workflow]]:
    """What each of these signals would become if none of them was known; the runs by key; and the payloads of archived signals.

    Then the workflows of the runs, where this process knows them.

    From here to the end of the transaction no step of these runs falls asleep.
    """
    keys = {"keys": sorted({signal.run for signal in signals})}
    asked: list[db.Statement] = [(sleeping.AWAKE, keys), (_RUNS, {**keys, "most": MOST_SIGNALS}), (_ARCHIVED, keys)]
    if len(signals) > 1:  # they count together against a run's limit, but for those that have come before
        asked.append((_KNOWN, _arrays([(signal.run, signal.name, signal.key) for signal in signals])))
    _, found, kept, *here = db.fetch_together(*asked)
    runs = {row[0]: _Seen(*row[1:]) for row in found}
    archived: dict[str, Any] = dict(kept)
    kept_before = {(run, row["name"], row["key"]): row["payload"] for run, rows in archived.items() for row in rows or ()}

    definitions: dict[str, Workflow] = {}
    counted: set[Identity] = {(run, name, key) for rows in here for run, name, key, _payload in rows}
    more: Counter[str] = Counter()  # the new signals of this call that each run has got so far

    def outcome(signal: NewSignal) -> Sent:
        seen = runs.get(signal.run, _UNKNOWN)
        if seen.run_id is None and signal.run in archived:
            return Sent.ENDED
        if seen.workflow is None:
            return Sent.UNKNOWN_RUN
        if seen.signals + more[signal.run] >= _most(signal):
            return Sent.TOO_MANY
        try:
            definition = newest(seen.workflow) if seen.version is None else version_of(seen.workflow, seen.version)
        except (DefinitionError, UnreadableSubmission):
            return Sent.ENDED if seen.ended else Sent.ACCEPTED  # other code knows this version
        definitions[signal.run] = definition
        found = _early(signal.name, seen.workflow, seen) if seen.version is None else _outcome(signal.name, definition, seen)
        if found in KEPT and (identity := (signal.run, signal.name, signal.key)) not in counted:
            counted.add(identity)
            more[signal.run] += 1
        return found

    outcomes = [outcome(signal) for signal in signals]
    return outcomes, {key: seen.run_id for key, seen in runs.items() if seen.run_id is not None}, kept_before, definitions


def _early(name: str, workflow: str, seen: _Seen) -> Sent:
    """Of a signal to an order that has no run yet. Any version may be the one that waits for it: the submission may name its version,
    and a process with older or newer code may take it up."""
    known = versions_of(workflow)
    may_come = any(name in each.signals for each in known) or (seen.latest or 0) > max((each.version for each in known), default=0)
    return Sent.NOT_AWAITED if not may_come else Sent.ENDED if seen.ended else Sent.ACCEPTED


def _outcome(name: str, known: Workflow, seen: _Seen) -> Sent:
    if name not in known.signals:
        return Sent.NOT_AWAITED
    if seen.ended:
        return Sent.ENDED
    waits = [at for at in range(len(known.steps)) if name == known.steps[at].awaited or name in known.agent(at).signals]
    takes = any(at in seen.open or _is_done_anew(at, known, seen.resume_from) for at in waits)
    return Sent.ACCEPTED if takes else Sent.LATE


def _is_done_anew(at: int, known: Workflow, resume_from: int | None) -> bool:
    """Whether a run that goes back to `resume_from` does the step at this position anew: that step, and what comes after it."""
    if resume_from is None or at <= resume_from:
        return at == resume_from
    return known.shape is None or resume_from in known.shape.before(at)
