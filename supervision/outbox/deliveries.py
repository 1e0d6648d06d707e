"""Deliveries: one row for each receiver of a status message in the outbox, and the results of its attempts.

1. `fan_out` turns notifications of kind `status` into rows: one per endpoint of the run's client that wants the event, also
   if it is switched off now, one for the reply token that the order named. One statement; repeating it adds nothing.
2. A claim (`claim_webhooks`, `claim_replies`) leases due rows. If the deliverer dies, the lease expires and the rows are
   tried again. Every claim raises `attempt`, which is the fencing token of the later writes.
3. `record` writes the results. A failed delivery is tried again after 5 s, doubling to an hour. One that fails when three
   days have passed since it was asked for is given up, and shown as such. The test of a webhook is given up at its first failure.

An endpoint that gave no answer gets no messages for a while. One that has failed gets single messages as probes, until
it accepts one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from supervision.postgres import db

LEASE_SECONDS = 60.0
FIRST_WAIT_SECONDS = 5
LONGEST_WAIT_SECONDS = 3600
LOGGED = 200  # tries and wishes that a delivery's row keeps
GIVE_UP_AFTER_DAYS = 3
LONGEST_SILENCE_SECONDS = 60  # the longest back-off of an endpoint that gave no answer

_FAN_OUT = """
WITH due AS MATERIALIZED (
    SELECT id, run_id, payload FROM supervision_notification
     WHERE delivered_at IS NULL AND kind = 'status' ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
m AS MATERIALIZED (
    SELECT n.run_id, (n.payload->>'seq')::int AS seq, 'order.' || (n.payload->>'status') AS event, s.client, r.reply_to,
           'msg_' || r.key || '_' || (n.payload->>'seq') AS message_id,
           format('{"type":"order.%%s","timestamp":"%%s","data":{"order":%%s,"seq":%%s,"status":"%%s"}}',
                  n.payload->>'status', n.payload->>'at', to_json(r.key), n.payload->>'seq', n.payload->>'status') AS body
      FROM due n JOIN supervision_run r ON r.id = n.run_id JOIN supervision_submission s ON s.public_id = r.key),
receivers AS (
    SELECT m.*, e.id AS endpoint_id, NULL::bigint AS reply_token_id
      FROM m JOIN supervision_webhookendpoint e ON e.client = m.client AND e.removed_at IS NULL
       AND (e.events = '[]'::jsonb OR e.events ? m.event)
    UNION ALL
    SELECT m.*, NULL, t.id
      FROM m JOIN supervision_replytoken t ON t.token_hash = m.reply_to AND t.client = m.client AND t.revoked_at IS NULL),
written AS (
    INSERT INTO supervision_delivery (public_id, client, endpoint_id, reply_token_id, run_id, seq, event, message_id, body)
    SELECT 'dlv_' || replace(gen_random_uuid()::text, '-', ''), client, endpoint_id, reply_token_id, run_id, seq, event,
           message_id, body
      FROM receivers ORDER BY run_id, seq
    ON CONFLICT DO NOTHING),
told AS (
    UPDATE supervision_notification n SET delivered_at = now(), tries = 1 FROM due WHERE n.id = due.id)
SELECT count(*) FROM due
"""

# Claims a few rows each of up to `receivers` endpoints: of those that answer, or (`suspect`) of those that failed lately
# or are slow. One that failed gets a single message. The random order keeps any endpoint from always being last.
# The cost must follow the rows taken, not those that wait for a dead receiver. So there is no EXISTS, which the planner
# would turn into a join that reads every due message. The sort by a column that is null here is the index's own order.
# The array keeps the planner from reading the whole table for a LIMIT whose number it does not know.
_CLAIM_WEBHOOKS = """
WITH e AS MATERIALIZED (
    SELECT e.id, e.url, e.secret, e.failures FROM supervision_webhookendpoint e
     WHERE e.active AND (e.retry_at IS NULL OR e.retry_at <= now()) AND e.id <> ALL (%(busy)s::bigint[])
       AND (e.failures > 0 OR e.id = ANY (%(slow)s::bigint[])) = %(suspect)s
       AND (SELECT true FROM supervision_delivery d
             WHERE d.endpoint_id = e.id AND d.reply_token_id IS NULL AND d.not_before <= now()
               AND d.delivered_at IS NULL AND d.given_up_at IS NULL
             ORDER BY d.reply_token_id, d.not_before LIMIT 1)
     ORDER BY random() LIMIT %(receivers)s),
c AS MATERIALIZED (
    SELECT c.id, e.id AS endpoint_id, e.url, e.secret FROM e CROSS JOIN LATERAL (
        SELECT d.id FROM supervision_delivery d
         WHERE d.endpoint_id = e.id AND d.reply_token_id IS NULL AND d.not_before <= now()
           AND d.delivered_at IS NULL AND d.given_up_at IS NULL
         ORDER BY d.reply_token_id, d.not_before LIMIT CASE WHEN e.failures > 0 THEN 1 ELSE %(each)s END
           FOR UPDATE SKIP LOCKED) c)
UPDATE supervision_delivery d
   SET attempt = d.attempt + 1, not_before = now() + %(lease)s::float8 * interval '1 s'
  FROM c WHERE d.id = c.id AND d.id = ANY (ARRAY(SELECT c.id FROM c))
RETURNING d.id, d.attempt, d.run_id, d.seq, d.message_id, d.event, d.body, c.endpoint_id, c.url, c.secret
"""

_CLAIM_REPLIES = """
WITH t AS MATERIALIZED (
    SELECT t.id, t.queue FROM supervision_replytoken t
     WHERE t.revoked_at IS NULL
       AND t.queue <> ALL (%(shut)s::text[])
       AND (SELECT true FROM supervision_delivery d
             WHERE d.endpoint_id IS NULL AND d.reply_token_id = t.id AND d.not_before <= now()
               AND d.delivered_at IS NULL AND d.given_up_at IS NULL
             ORDER BY d.endpoint_id, d.not_before LIMIT 1)
     ORDER BY random() LIMIT %(receivers)s),
c AS MATERIALIZED (
    SELECT c.id, t.queue FROM t CROSS JOIN LATERAL (
        SELECT d.id FROM supervision_delivery d
         WHERE d.endpoint_id IS NULL AND d.reply_token_id = t.id AND d.not_before <= now()
           AND d.delivered_at IS NULL AND d.given_up_at IS NULL
         ORDER BY d.endpoint_id, d.not_before LIMIT %(each)s FOR UPDATE SKIP LOCKED) c)
UPDATE supervision_delivery d
   SET attempt = d.attempt + 1, not_before = now() + %(lease)s::float8 * interval '1 s'
  FROM c WHERE d.id = c.id AND d.id = ANY (ARRAY(SELECT c.id FROM c))
RETURNING d.id, d.attempt, d.run_id, d.seq, d.message_id, d.event, d.body, 0, c.queue, ''
"""

_RECORD = """
WITH v AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(oks)s::bool[], %(codes)s::int[], %(errors)s::text[],
                         %(seconds)s::float8[]) v(id, attempt, ok, code, error, seconds)),
u AS (
    UPDATE supervision_delivery d
       SET tries = d.tries + 1, status_code = v.code, last_error = v.error,
           delivered_at = CASE WHEN v.ok THEN now() END,
           given_up_at = CASE WHEN NOT v.ok AND (d.run_id IS NULL OR d.asked_at <= now() - %(days)s * interval '1 day') THEN now() END,
           not_before = now() + least(%(first)s * 2 ^ least(d.tries, 20), %(longest)s) * interval '1 s',
           log = (CASE WHEN jsonb_array_length(d.log) >= %(logged)s THEN d.log - 0 ELSE d.log END)
                 || jsonb_build_object('at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                                       'status_code', v.code, 'error', v.error, 'seconds', v.seconds)
      FROM v WHERE d.id = v.id AND d.attempt = v.attempt AND d.delivered_at IS NULL
    RETURNING d.id)
SELECT id FROM u
"""

# A success clears the failures. Each failure doubles the back-off, which only endpoints get that gave no answer.
_JUDGE = """
UPDATE supervision_webhookendpoint e
   SET failures = CASE WHEN v.ok THEN 0 ELSE least(e.failures + 1, 1000000) END,
       failing_since = CASE WHEN NOT v.ok THEN coalesce(e.failing_since, now()) END,
       retry_at = CASE WHEN v.answered THEN NULL
                       ELSE now() + least(%(first)s * 2 ^ least(e.failures, 10), %(silence)s) * interval '1 s' END
  FROM (SELECT id, bool_or(ok) AS ok, bool_or(answered) AS answered
          FROM unnest(%(ids)s::bigint[], %(oks)s::bool[], %(answers)s::bool[]) v(id, ok, answered) GROUP BY id) v
 WHERE e.id = v.id AND (NOT v.ok OR e.failures > 0 OR e.retry_at IS NOT NULL)
"""

_RELEASE = """
UPDATE supervision_delivery d SET not_before = now()
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) v(id, attempt)
 WHERE d.id = v.id AND d.attempt = v.attempt AND d.delivered_at IS NULL AND d.given_up_at IS NULL
"""

# Gives up deliveries whose receiver is gone, and old ones whose receiver is switched off or has failed all that time (such
# a receiver gets only one message now and then). A message that is old because no deliverer ran is still tried.
_GIVE_UP = """
WITH hopeless AS MATERIALIZED (
    SELECT d.id FROM supervision_webhookendpoint e CROSS JOIN LATERAL (
        SELECT d.id FROM supervision_delivery d
         WHERE d.endpoint_id = e.id AND d.reply_token_id IS NULL AND d.not_before <= now()
           AND d.delivered_at IS NULL AND d.given_up_at IS NULL
           AND (e.removed_at IS NOT NULL OR d.asked_at <= now() - %(days)s * interval '1 day')
         ORDER BY d.reply_token_id, d.not_before LIMIT %(limit)s) d
     WHERE e.removed_at IS NOT NULL OR NOT e.active OR e.failing_since <= now() - %(days)s * interval '1 day'
    UNION ALL
    SELECT d.id FROM supervision_replytoken t CROSS JOIN LATERAL (
        SELECT d.id FROM supervision_delivery d
         WHERE d.endpoint_id IS NULL AND d.reply_token_id = t.id AND d.not_before <= now()
           AND d.delivered_at IS NULL AND d.given_up_at IS NULL
         ORDER BY d.endpoint_id, d.not_before LIMIT %(limit)s) d
     WHERE t.revoked_at IS NOT NULL
    LIMIT %(limit)s),
given_up AS (
    UPDATE supervision_delivery d SET given_up_at = now(), last_error = %(why)s
     WHERE d.id = ANY (ARRAY(SELECT id FROM hopeless))
       AND d.delivered_at IS NULL AND d.given_up_at IS NULL AND d.not_before <= now())
SELECT count(*) FROM hopeless
"""
AT_ONCE = 5_000  # given up in one commit


@dataclass(frozen=True)
class Due:
    """A delivery that this process has leased. address: an endpoint's URL, or the name of a reply queue. secret: as it is stored."""

    id: int
    attempt: int
    run_id: int | None  # None: a test
    seq: int
    message_id: str
    event: str
    body: str
    endpoint_id: int
    address: str
    secret: str

    @property
    def order(self) -> str:
        """The public id of the order that the message is about."""
        return str(json.loads(self.body)["data"]["order"])


@dataclass(frozen=True)
class Try:
    """The result of one delivery attempt. answered: the receiver gave any answer, also a refusal."""

    due: Due
    delivered: bool
    answered: bool
    status_code: int | None = None
    error: str = ""
    seconds: float = 0.0


def fan_out(limit: int = 500) -> int:
    """Write the deliveries of waiting status messages. Returns how many messages were handled."""
    return int(db.run(_FAN_OUT, {"limit": limit})[0][0])


def claim_webhooks(receivers: int, each: int, *, suspect: bool, busy: Sequence[int] = (), slow: Sequence[int] = ()) -> dict[int, list[Due]]:
    """Lease due rows of up to `receivers` endpoints, at most `each` per endpoint. By endpoint, sorted by run and seq."""
    params: dict[str, Any] = {"receivers": receivers, "each": each, "suspect": suspect, "lease": LEASE_SECONDS}
    found: dict[int, list[Due]] = {}
    for due in _claim(_CLAIM_WEBHOOKS, {**params, "busy": list(busy), "slow": list(slow)}):
        found.setdefault(due.endpoint_id, []).append(due)
    return found


def claim_replies(receivers: int, each: int, *, shut: Sequence[str] = ()) -> list[Due]:
    """Lease due rows of up to `receivers` reply queues that are not `shut`, at most `each` per queue, sorted by run and seq."""
    return _claim(_CLAIM_REPLIES, {"receivers": receivers, "each": each, "shut": list(shut), "lease": LEASE_SECONDS})


def _claim(statement: str, params: dict[str, Any]) -> list[Due]:
    return sorted((Due(*row) for row in db.run(statement, params)), key=lambda due: (due.run_id or 0, due.seq))


def record(tries: Sequence[Try]) -> int:
    """Write the results of these tries. Returns how many were written: those whose claim was still the newest."""
    if not tries:
        return 0
    params = {
        "ids": [each.due.id for each in tries],
        "attempts": [each.due.attempt for each in tries],
        "oks": [each.delivered for each in tries],
        "codes": [each.status_code for each in tries],
        "errors": [_storable(each.error) for each in tries],
        "seconds": [each.seconds for each in tries],
        "days": GIVE_UP_AFTER_DAYS,
        "first": FIRST_WAIT_SECONDS,
        "longest": LONGEST_WAIT_SECONDS,
        "logged": LOGGED,
    }

    def work() -> int:
        written = {row[0] for row in db.fetch(_RECORD, params)}
        _judge([each for each in tries if each.due.endpoint_id and each.due.id in written])
        return len(written)

    return db.transact(work)


def _judge(tries: Sequence[Try]) -> None:
    """Note what these tries say about their endpoints. A try whose claim was lost says nothing: its process may have been frozen."""
    if tries:
        facts = {
            "ids": [each.due.endpoint_id for each in tries],
            "oks": [each.delivered for each in tries],
            "answers": [each.answered for each in tries],
            "first": FIRST_WAIT_SECONDS,
            "silence": LONGEST_SILENCE_SECONDS,
        }
        db.fetch(_JUDGE, facts)


def _storable(words: str) -> str:
    return words.replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:500]


def release(dues: Sequence[Due]) -> None:
    """Release leased deliveries that were not tried."""
    if dues:
        db.run(_RELEASE, {"ids": [due.id for due in dues], "attempts": [due.attempt for due in dues]})


def give_up_hopeless(why: str) -> None:
    """Give up deliveries that will not be tried any more."""
    while db.run(_GIVE_UP, {"why": why, "days": GIVE_UP_AFTER_DAYS, "limit": AT_ONCE})[0][0] == AT_ONCE:
        pass
