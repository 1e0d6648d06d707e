"""Sends signals to runs. A signal is accepted when its row is committed; the run takes it when a step waits for it.

In the caller's transaction the signal commits with the caller's own changes. It may come before anything waits for it, also
before the run exists. Repeating a signal under its key changes nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.utils.translation import gettext as _

from supervision.errors import DefinitionError, Refused, UnknownRun, UnreadableSubmission
from supervision.postgres import db
from supervision.states import FINAL_RUN_STATES
from supervision.store import sleeping
from supervision.wakeup import hints
from supervision.workflow import newest, version_of

MOST_PAYLOAD_BYTES = 65_536
MOST_KEY = 255


@dataclass(frozen=True, kw_only=True)
class NewSignal:
    """One signal. run: the run's key. key: the sender's own for this signal; the same signal sent again has the same key."""

    run: str
    name: str
    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    sent_by: str = ""
    reason: str = ""


class Sent(StrEnum):
    """What became of a signal."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it was accepted before, under this key
    UNKNOWN_RUN = "unknown_run"
    ENDED = "ended"
    NOT_AWAITED = "not_awaited"  # no step of the run's workflow waits for a signal of this name
    KEY_REUSED = "key_reused"  # another payload was accepted under this key


def send_signal(
    run: str, name: str, payload: Mapping[str, Any] | None = None, *, key: str | None = None, sent_by: str = "", reason: str = ""
) -> Sent:
    """Send one signal; returns `accepted`, or `repeated` where it has come before under this key.

    key: without one, each call sends another signal. Raises UnknownRun; Refused if the run has ended, if its workflow does
    not wait for such a signal, if the key was used with another payload, or if the payload cannot be kept.
    """
    signal = NewSignal(run=run, name=name, key=key or secrets.token_urlsafe(16), payload=payload or {}, sent_by=sent_by, reason=reason)
    [outcome] = send_all([signal])
    if outcome == Sent.UNKNOWN_RUN:
        raise UnknownRun(run)
    refusals = {
        Sent.ENDED: _("The order has ended and takes no signal any more."),
        Sent.NOT_AWAITED: _("No step of this order waits for a signal named %(name)s.") % {"name": name},
        Sent.KEY_REUSED: _("Another signal was sent under this key."),
    }
    if outcome in refusals:
        raise Refused(refusals[outcome], f"signal_{outcome}")
    return outcome


def send_all(signals: Sequence[NewSignal]) -> list[Sent]:
    """Send signals in one transaction; returns what became of each, in order. Raises Refused if a payload or key cannot be kept."""
    bodies = [_body(signal) for signal in signals]
    outcomes = db.transact(lambda: _send(signals, bodies))
    if Sent.ACCEPTED in outcomes:
        hints.send(hints.SCHEDULE)
    return outcomes


def _body(signal: NewSignal) -> str:
    """The payload as JSON text that PostgreSQL can keep."""
    if not isinstance(signal.payload, Mapping):
        raise Refused(_("The payload must be a JSON object."), "signal_payload")
    try:
        text = json.dumps(signal.payload, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise Refused(_("The payload is no JSON: %(problem)s.") % {"problem": problem}, "signal_payload") from problem
    if len(text) > MOST_PAYLOAD_BYTES:
        facts = {"size": len(text), "most": MOST_PAYLOAD_BYTES}
        raise Refused(_("The payload has %(size)d bytes, at most %(most)d are kept.") % facts, "signal_payload")
    if "\\u0000" in text or any("\ud800" <= character <= "\udfff" for character in json.dumps(signal.payload, ensure_ascii=False)):
        raise Refused(_("The payload has characters that cannot be kept."), "signal_payload")
    if not 0 < len(signal.key) <= MOST_KEY or "\0" in signal.key:
        raise Refused(_("A signal's key has 1 to %(most)d characters.") % {"most": MOST_KEY}, "signal_key")
    return text


# A submission that is locked here becomes no run before the signal is committed, so no wait of its run can miss the signal.
_SUBMISSIONS = """
SELECT public_id, workflow FROM supervision_submission
 WHERE public_id = ANY (%(keys)s::text[]) AND consumed_at IS NULL ORDER BY id FOR UPDATE
"""
_RUNS = "SELECT id, key, workflow, version, process_state FROM supervision_run WHERE key = ANY (%(keys)s::text[]) ORDER BY id"
_ARCHIVED = "SELECT key FROM supervision_archivedrun WHERE key = ANY (%(keys)s::text[])"
_INSERT = """
INSERT INTO supervision_signal (run_key, name, key, payload, sent_by, reason)
SELECT run_key, name, key, payload, sent_by, reason
  FROM unnest(%(runs)s::text[], %(names)s::text[], %(keys)s::text[], %(payloads)s::jsonb[], %(senders)s::text[], %(reasons)s::text[])
       WITH ORDINALITY v(run_key, name, key, payload, sent_by, reason, n)
 ORDER BY n
ON CONFLICT (run_key, name, key) DO NOTHING
RETURNING run_key, name, key
"""
_SAME = """
SELECT g.payload = v.payload
  FROM unnest(%(runs)s::text[], %(names)s::text[], %(keys)s::text[], %(payloads)s::jsonb[])
       WITH ORDINALITY v(run_key, name, key, payload, n)
  JOIN supervision_signal g ON g.run_key = v.run_key AND g.name = v.name AND g.key = v.key
 ORDER BY v.n
"""


def _send(signals: Sequence[NewSignal], bodies: Sequence[str]) -> list[Sent]:
    outcomes, runs = _addressed(signals)
    chosen = [(signal, body) for signal, body, outcome in zip(signals, bodies, outcomes, strict=True) if outcome == Sent.ACCEPTED]
    if not chosen:
        return outcomes
    facts = {
        "runs": [signal.run for signal, _body in chosen],
        "names": [signal.name for signal, _body in chosen],
        "keys": [signal.key for signal, _body in chosen],
        "payloads": [body for _signal, body in chosen],
    }
    people = {"senders": [signal.sent_by for signal, _body in chosen], "reasons": [signal.reason for signal, _body in chosen]}
    new = set(db.fetch(_INSERT, {**facts, **people}))
    same = iter(db.fetch(_SAME, facts))
    for number, signal in enumerate(signals):
        if outcomes[number] == Sent.ACCEPTED:
            [equal] = next(same)
            identity = (signal.run, signal.name, signal.key)
            outcomes[number] = Sent.KEY_REUSED if not equal else Sent.ACCEPTED if identity in new else Sent.REPEATED
            new.discard(identity)
    if woken := [(runs[s.run], s.name) for s, outcome in zip(signals, outcomes, strict=True) if outcome == Sent.ACCEPTED and s.run in runs]:
        sleeping.wake(sorted(set(woken)))
    return outcomes


def _addressed(signals: Sequence[NewSignal]) -> tuple[list[Sent], dict[str, int]]:
    """Whether each of these signals has a run that takes it, and the runs by key. Locks the runs' open steps."""
    keys = sorted({signal.run for signal in signals})
    waiting = dict(db.fetch(_SUBMISSIONS, {"keys": keys}))
    found = db.fetch(_RUNS, {"keys": keys})
    sleeping.lock_open([row[0] for row in found])
    runs = {key: (workflow, version, state) for _id, key, workflow, version, state in db.fetch(_RUNS, {"keys": keys})}
    missing = [key for key in keys if key not in runs and key not in waiting]
    archived = {row[0] for row in db.fetch(_ARCHIVED, {"keys": missing})} if missing else set()

    def outcome(signal: NewSignal) -> Sent:
        if signal.run in runs:
            workflow, version, state = runs[signal.run]
            return _outcome(signal.name, workflow, version, ended=state in FINAL_RUN_STATES)
        if signal.run in waiting:
            return _outcome(signal.name, waiting[signal.run], None, ended=False)
        return Sent.ENDED if signal.run in archived else Sent.UNKNOWN_RUN

    return [outcome(signal) for signal in signals], {row[1]: row[0] for row in found}


def _outcome(name: str, workflow: str, version: int | None, *, ended: bool) -> Sent:
    try:
        known = newest(workflow) if version is None else version_of(workflow, version)
    except (DefinitionError, UnreadableSubmission):
        return Sent.ENDED if ended else Sent.ACCEPTED  # other code knows this version
    if name not in known.signals:
        return Sent.NOT_AWAITED
    return Sent.ENDED if ended else Sent.ACCEPTED
