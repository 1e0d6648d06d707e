"""Every page of the console, found in the admin's addresses, with a row in each table: for tests that look at all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls.resolvers import URLPattern, URLResolver
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from knox.models import AuthToken

from orders.models import Order
from supervision.console.verb_forms import BULK_VERBS, VERBS
from supervision.incidents import lifecycle
from supervision.models import Delivery, Incident, LeaderLease, Run, WebhookEndpoint
from supervision.operations import pauses
from tests.support.console import fail, place

admin.autodiscover()  # otherwise the first page that a test asks for imports the console's pages
ROOT = "/admin/"
# Answers that are no pages: data, files, redirections, and what takes a POST only.
NO_PAGES = re.compile(
    r"autocomplete/|jsi18n/|logout/|^search/|^r/|download/|acknowledge/$|of-run/|/password/$|\.csv|/export/|/views/|<path:object_id>/$"
)
_RUN = {
    "process_state": "Processed",
    "direction": "do",
    "key": "a value",
    "workflow": "fulfil-order",
    "version": 1,
    "priority": 0,
    "payload": {},
    "created_at": "2026-01-01T00:00:00+00:00",
    "finished_at": "2026-01-01T00:00:01+00:00",
}
# More than one row is enough to show: values that go where a row has none.
GIVEN: dict[str, dict[str, Any]] = {
    "orders.erasure": {"state": "working", "subject": {}, "done_at": None},
    "supervision.archivedrun": {"process_state": "Processed", "body": {"run": _RUN}},
    "supervision.delivery": {"body": '{"type": "order.processed", "data": {"order": "a value", "seq": 1}}'},
    "supervision.journalentry": {"body": "{}"},
    "supervision.replytoken": {"queue": "reply.shop"},
    "supervision.resource": {"name": "payment"},
    "supervision.resourceroute": {"service": "payment", "partition": "*", "resource": "payment"},
    "supervision.webhookendpoint": {"url": "https://example.com/hook", "secret": "whsec_dGVzdA=="},
}


def fill() -> dict[str, Order]:
    """A row in every table that the console shows. Returns an order in Error and one that runs."""
    (failed,), (fresh,) = fail(message="card_declined: refused"), place()
    lifecycle.look()
    pauses.pause("agent", "email", reason="the mail server is replaced", by="olga")
    LeaderLease.objects.get_or_create(name="supervisor", holder="supervisor@one", expires_at="2100-01-01T00:00Z")
    interval = IntervalSchedule.objects.create(every=30, period="seconds")
    CrontabSchedule.objects.create()
    ClockedSchedule.objects.create(clocked_time=timezone.now())
    SolarSchedule.objects.create(event="sunrise", latitude=45, longitude=9)
    PeriodicTask.objects.create(name="look", task="supervision.look", interval=interval)
    Group.objects.get_or_create(name="viewer")
    for model in admin.site._registry:
        if not model._default_manager.exists():
            a_row(model)
    return {"failed": failed, "fresh": fresh}


def a_row(model: type[models.Model]) -> Any:
    """A row of this model with a plain value in every column that needs one."""
    if model is AuthToken:
        return AuthToken.objects.create(User.objects.first() or a_row(User))[0]
    given = dict(GIVEN.get(model._meta.label_lower, {}))
    if model is Delivery:
        given["endpoint"] = WebhookEndpoint.objects.first() or a_row(WebhookEndpoint)
    for field in model._meta.concrete_fields:
        if field.name in given or field.null or field.has_default() or field.db_default is not models.NOT_PROVIDED or field.auto_created:
            continue
        given[field.name] = _value(field)
    return model._default_manager.create(**given)


def _value(field: Any) -> Any:
    if isinstance(field, models.ForeignKey):
        return field.related_model._default_manager.first() or a_row(field.related_model)
    if isinstance(field, models.DateTimeField):
        return timezone.now()
    if isinstance(field, models.DecimalField | models.IntegerField | models.FloatField):
        return 1
    if isinstance(field, models.JSONField):
        return {}
    if isinstance(field, ArrayField):
        return []
    if isinstance(field, models.BinaryField):
        return b"{not json"
    return field.choices[0][0] if field.choices else "a value"[: field.max_length]


def patterns(found: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The addresses below these patterns as they are written, with their names."""
    for one in found:
        if isinstance(one, URLResolver):
            yield from patterns(one.url_patterns, prefix + str(one.pattern))
        elif isinstance(one, URLPattern) and one.name:
            yield prefix + str(one.pattern), one.name


def addresses(orders: dict[str, Order]) -> list[str]:
    """The address of every page, each with a row of ours. A new kind of address has to be named here, or this fails."""
    found = [
        ROOT + address
        for written, name in patterns(admin.site.get_urls())
        if not NO_PAGES.search(written)
        for address in _filled(written, name, orders)
    ]
    incident = Incident.objects.order_by("pk").first()
    return [
        *found,
        f"{ROOT}orders/order/?incident={incident.pk if incident else 0}",
        f"{ROOT}orders/order/?q=no-such-order",
        f"{ROOT}?span=week",
    ]


def _filled(written: str, name: str, orders: dict[str, Order]) -> list[str]:
    if apps_of := re.match(r"\^\(\?P<app_label>([\w|]+)\)", written):
        return [f"{app}/" for app in apps_of[1].split("|")]
    if "<" not in written:
        return [] if name in ("login",) else [written]
    app, label = written.split("/")[:2]
    row = _row_of(apps.get_model(app, label), orders)
    filled = re.sub(r"<(?:path|int|str):(?:\w+_id|id|pk)>", str(row), written)
    if "<slug:verb>" in filled:
        verbs: Iterable[str] = ("requeue", "discard") if "deadletter" in filled else BULK_VERBS if "/bulk/" in filled else VERBS
        query = "?process_state=Error" if "/bulk/" in filled else ""
        return [filled.replace("<slug:verb>", verb) + query for verb in verbs]
    filled = filled.replace("<str:refund>", "re_1")  # of a failed refund: there is none, so it leads to the order's page
    filled = filled.replace("<str:back>", "r1")  # of a return: there is none, so it leads to the order's page
    assert "<" not in filled, f"say in tests/support/console_pages.py what {written} is to be filled with"
    return [filled]


def _row_of(model: type[models.Model], orders: dict[str, Order]) -> Any:
    if model is Order:
        return orders["failed"].pk
    if model is Run:
        return orders["failed"].run_id
    if model is User:
        return User.objects.get(username="olga").pk
    row = model._default_manager.order_by("pk").first()
    assert row is not None, model
    return row.pk
