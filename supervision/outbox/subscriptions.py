"""Webhooks and private reply queues of client accounts: register, revoke, send again.

A `client` is the account's name as submissions carry it. Only the hash of a reply token is stored; orders carry the hash.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Sequence

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.errors import Refused
from supervision.models import ArchivedRun, Delivery, Notification, ReplyToken, Run, WebhookEndpoint
from supervision.outbox import address_policy, deliveries, reply_queues
from supervision.outbox.notifications import handler
from supervision.postgres import db

STATUSES = ("received", "processing", "processed", "error", "cancelled")
EVENTS = tuple(f"order.{status}" for status in STATUSES)
TEST = "webhook.test"  # the event of a test: no order has it, and a webhook that wants other events only gets it, too
TESTS_KEPT = 20  # of one webhook; an older one leaves the log
MOST_WEBHOOKS = 20  # of one account
MOST_TOKENS = 20
WITHOUT_RECEIVERS = frozenset({"", "guest"})  # these clients can have neither webhooks nor reply tokens

REPLY_QUEUE_ISSUED, REPLY_QUEUE_REVOKED = "reply-queue-issued", "reply-queue-revoked"
_AGAIN_AFTER_SECONDS = 120  # longer than a deliverer can still hold a message that it held at the revocation

_LISTENING = "SELECT DISTINCT client FROM supervision_webhookendpoint WHERE active AND client = ANY (%(clients)s)"


def interested(clients: Sequence[str], reply_tos: Sequence[str | None]) -> list[bool]:
    """For each of these orders, whether a webhook or reply queue listens to it. One query by index, none for guests."""
    named = sorted(set(clients) - WITHOUT_RECEIVERS)
    listening = {row[0] for row in db.fetch(_LISTENING, {"clients": named})} if named else set()
    return [client in listening or reply_to is not None for client, reply_to in zip(clients, reply_tos, strict=True)]


# ---------------------------------------------------------------------------------------------------- webhooks


def register_webhook(client: str, url: str, events: Iterable[str] = ()) -> WebhookEndpoint:
    """Create an endpoint. Show its secret to the client only now. Raises Forbidden for an address that we do not send to."""
    address_policy.check(url)
    if webhooks_of(client).count() >= MOST_WEBHOOKS:
        raise Refused(_("An account can have %(most)d webhooks.") % {"most": MOST_WEBHOOKS}, "too_many")
    return WebhookEndpoint.objects.create(
        public_id=f"wh_{secrets.token_hex(16)}",
        client=client,
        url=url,
        secret=f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}",
        events=[event for event in EVENTS if event in set(events)],
    )


def webhooks_of(client: str) -> QuerySet[WebhookEndpoint]:
    """The account's endpoints."""
    return WebhookEndpoint.objects.filter(client=client, removed_at__isnull=True).defer("secret")


# The client waits for the answer, so only so many deliveries are given up with it. The deliverers give up the rest (`deliveries`).
_REMOVE = """
WITH e AS (
    UPDATE supervision_webhookendpoint SET active = false, removed_at = now(), secret = ''
     WHERE id = %(id)s AND removed_at IS NULL RETURNING id)
UPDATE supervision_delivery d SET given_up_at = now(), last_error = %(why)s
  FROM e WHERE d.endpoint_id = e.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
   AND d.id = ANY (ARRAY(
       SELECT w.id FROM supervision_delivery w
        WHERE w.endpoint_id = %(id)s AND w.reply_token_id IS NULL AND w.delivered_at IS NULL AND w.given_up_at IS NULL
        ORDER BY w.reply_token_id, w.not_before LIMIT %(most)s))
"""
GIVEN_UP_AT_ONCE = 10_000


def remove_webhook(endpoint: WebhookEndpoint) -> None:
    """Remove the endpoint: send nothing more to it and give up its waiting deliveries. The log of its deliveries stays."""
    db.run(_REMOVE, {"id": endpoint.pk, "why": _n("the webhook was removed"), "most": GIVEN_UP_AT_ONCE})


# Its body has the shape of every other message. An endpoint that is left in peace after a failure is asked now.
_TEST = """
WITH e AS (
    UPDATE supervision_webhookendpoint SET retry_at = NULL WHERE id = %(id)s AND active RETURNING id, client),
old AS (
    DELETE FROM supervision_delivery d USING e
     WHERE d.endpoint_id = e.id AND d.run_id IS NULL
       AND d.id <= (SELECT o.id FROM supervision_delivery o WHERE o.endpoint_id = %(id)s AND o.run_id IS NULL
                     ORDER BY o.id DESC OFFSET %(kept)s - 1 LIMIT 1)),
n AS (SELECT replace(gen_random_uuid()::text, '-', '') AS word)
INSERT INTO supervision_delivery (public_id, client, endpoint_id, seq, event, message_id, body, log)
SELECT 'dlv_' || n.word, e.client, e.id, 0, %(event)s, 'msg_test_' || n.word,
       format('{"type":"%%s","timestamp":"%%s","data":{"order":null,"seq":0,"status":"test"}}', %(event)s::text, t.at),
       jsonb_build_array(jsonb_build_object('at', t.at, 'asked_by', %(by)s::text))
  FROM e, n, (SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS at) t
RETURNING id, pg_notify('supervision_outbox', 'status')
"""


def send_test(endpoint: WebhookEndpoint, *, by: str) -> Delivery | None:
    """Queue a signed test of this webhook; the deliverers try it once. None: the webhook is switched off or removed."""
    rows = db.run(_TEST, {"id": endpoint.pk, "event": TEST, "by": by, "kept": TESTS_KEPT})
    return Delivery.objects.select_related("endpoint", "reply_token").get(pk=rows[0][0]) if rows else None


# ------------------------------------------------------------------------------------------------ reply queues


def issue_reply_token(client: str) -> tuple[ReplyToken, str]:
    """Create a token, to be shown only now, for a queue with a random name: 256 random bits, and 128 in the queue's name."""
    if tokens_of(client).count() >= MOST_TOKENS:
        raise Refused(_("An account can have %(most)d reply tokens.") % {"most": MOST_TOKENS}, "too_many")
    token = f"rpl_{secrets.token_urlsafe(32)}"
    queue = f"{reply_queues.QUEUE_PREFIX}{secrets.token_hex(16)}"

    def issue() -> ReplyToken:
        Notification.objects.create(kind=REPLY_QUEUE_ISSUED, payload={"queue": queue})
        return ReplyToken.objects.create(token_hash=_hash(token), client=client, queue=queue)

    return db.transact(issue), token


def tokens_of(client: str) -> QuerySet[ReplyToken]:
    """The account's reply tokens that have not been revoked."""
    return ReplyToken.objects.filter(client=client, revoked_at__isnull=True)


def find_token(client: str, name: str) -> ReplyToken | None:
    """The account's token of this name: its id (the queue's name without `reply.`), its queue, or the token itself."""
    queue = name if name.startswith(reply_queues.QUEUE_PREFIX) else f"{reply_queues.QUEUE_PREFIX}{name}"
    return tokens_of(client).filter(Q(queue=queue) | Q(token_hash=_hash(name))).first()


def references(client: str, tokens: Iterable[str]) -> dict[str, str]:
    """The hash that an order carries for each of these tokens. Missing tokens are unknown, revoked or another account's."""
    hashes = {_hash(token): token for token in tokens}
    if not hashes or client in WITHOUT_RECEIVERS:
        return {}
    known = tokens_of(client).filter(token_hash__in=hashes).values_list("token_hash", flat=True)
    return {hashes[token_hash]: token_hash for token_hash in known}


def _hash(token: str) -> str:
    # The token has 256 random bits, so a plain hash keeps it secret.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


# A deliverer that still holds a message may declare the queue again. So the queue is deleted again once that is impossible.
_REVOKE = """
WITH t AS (
    UPDATE supervision_replytoken SET revoked_at = now() WHERE id = %(id)s AND revoked_at IS NULL RETURNING id, queue),
n AS (
    INSERT INTO supervision_notification (kind, payload, not_before)
    SELECT %(kind)s, jsonb_build_object('queue', t.queue), now() + wait * interval '1 s'
      FROM t CROSS JOIN (VALUES (0), (%(again)s)) w(wait))
UPDATE supervision_delivery d SET given_up_at = now(), last_error = %(why)s
  FROM t WHERE d.reply_token_id = t.id AND d.endpoint_id IS NULL AND d.delivered_at IS NULL AND d.given_up_at IS NULL
   AND d.id = ANY (ARRAY(
       SELECT w.id FROM supervision_delivery w
        WHERE w.endpoint_id IS NULL AND w.reply_token_id = %(id)s AND w.delivered_at IS NULL AND w.given_up_at IS NULL
        ORDER BY w.endpoint_id, w.not_before LIMIT %(most)s))
"""


def revoke_reply_token(token: ReplyToken) -> None:
    """Revoke the token: orders can no longer name it, no more messages go into its queue, and the queue is deleted."""
    why = _n("the reply token was revoked")
    facts = {"id": token.pk, "kind": REPLY_QUEUE_REVOKED, "again": _AGAIN_AFTER_SECONDS, "why": why, "most": GIVEN_UP_AT_ONCE}
    db.run(_REVOKE, facts)


@handler(REPLY_QUEUE_ISSUED)
def declare_queue(notification: Notification) -> None:
    """Declare the queue at the broker, so that its reader can subscribe before the first message."""
    if ReplyToken.objects.filter(queue=notification.payload["queue"], revoked_at__isnull=True).exists():
        reply_queues.declare_queue(notification.payload["queue"])


@handler(REPLY_QUEUE_REVOKED)
def delete_queue(notification: Notification) -> None:
    """Delete the queue of a revoked token at the broker."""
    reply_queues.delete_queues([notification.payload["queue"]])


# -------------------------------------------------------------------------------------------------- deliveries


def deliveries_of(client: str | None) -> QuerySet[Delivery]:
    """The account's deliveries; for None, the deliveries of all accounts.

    The account is a range of one: of an equal column the planner would forget the order (`requests.page_of`).
    """
    rows = Delivery.objects.select_related("endpoint", "reply_token").defer("endpoint__secret")
    return rows if client is None else rows.filter(client__gte=client, client__lte=client)


def about_order(rows: QuerySet[Delivery], key: str) -> QuerySet[Delivery]:
    """The deliveries among `rows` that report on this order, which may be archived. Its run is asked for first, to find them by index."""
    runs = Run.objects.filter(key=key).values_list("pk", flat=True)
    return rows.filter(run_id__in=list(runs.union(ArchivedRun.objects.filter(key=key).values_list("run_id", flat=True))))


def to_webhook(rows: QuerySet[Delivery], public_id: str) -> QuerySet[Delivery]:
    """The deliveries among `rows` to this webhook. Its key is asked for first, because a join would read all that `rows` may hold."""
    found = WebhookEndpoint.objects.filter(public_id=public_id).values_list("pk", flat=True).first()
    return rows.none() if found is None else rows.filter(endpoint_id=found)


_REDELIVER = """
WITH asked AS (
    UPDATE supervision_delivery d
       SET asked_at = now(), not_before = now(), tries = 0, attempt = d.attempt + 1, delivered_at = NULL, given_up_at = NULL,
           log = (CASE WHEN jsonb_array_length(d.log) >= %(logged)s THEN d.log - 0 ELSE d.log END)
                 || jsonb_build_object('at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'asked_by', %(by)s::text)
     WHERE d.id = ANY (%(ids)s)
       AND (EXISTS (SELECT FROM supervision_webhookendpoint e WHERE e.id = d.endpoint_id AND e.active)
            OR EXISTS (SELECT FROM supervision_replytoken t WHERE t.id = d.reply_token_id AND t.revoked_at IS NULL))
    RETURNING d.id, d.endpoint_id),
heard AS (
    UPDATE supervision_webhookendpoint e SET retry_at = NULL FROM asked WHERE e.id = asked.endpoint_id AND e.retry_at IS NOT NULL)
SELECT count(id), pg_notify('supervision_outbox', 'status') FROM asked
"""


def redeliver(ids: Sequence[int], *, by: str) -> int:
    """Send these deliveries again now, in any state, for another three days; returns how many still have an active receiver."""
    return int(db.run(_REDELIVER, {"ids": list(ids), "by": by, "logged": deliveries.LOGGED})[0][0])
