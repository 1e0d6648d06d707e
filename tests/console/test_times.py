"""Every page of the console writes times in one format, with the zone (2026-11-24 15:04:05 UTC), an order's page to the millisecond."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver, reverse
from django.utils import timezone, translation

from supervision.models import Channel, Delivery, Telling, WebhookEndpoint
from supervision.operations import operator_verbs, pauses
from supervision.runtime.humanize import moment
from supervision.worker import heartbeats
from tests.support.console import fail, page

ROOT = Path(settings.BASE_DIR)
OURS = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})? (?:[A-Z]{2,5}|[+-]\d{2,4})\b")
OTHERS = re.compile(
    r"\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\b[ap]\.m\.|\b\d{1,2}:\d\d\b"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d{1,2}\b|\b\d{4}-\d\d-\d\d\b"
)
TEMPLATES = [*(ROOT / "supervision/templates").rglob("*.html"), *(ROOT / "templates/admin").rglob("*.html")]


def text_of(html: str) -> str:
    """What people read on the page, without scripts, tags and their attributes."""
    body = re.sub(r"<(script|style|template)\b.*?</\1>", " ", html[html.index("<body") :], flags=re.DOTALL)
    return re.sub(r"<[^>]*>", "\n", body)


def other_formats(html: str) -> list[str]:
    return OTHERS.findall(OURS.sub("", text_of(html)))


def lists() -> list[str]:
    names = {str(name) for name in get_resolver().namespace_dict["admin"][1].reverse_dict}
    return sorted(name for name in names if name.endswith("_changelist"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_leave_times_to_the_one_helper(path: Path):
    formats = re.findall(r"\|(?:date|time)\b(?::\"[^\"]*\")?", path.read_text())

    assert set(formats) <= {'|date:"c"'}, formats  # the attribute `datetime`, for machines


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
class TestPages:
    @pytest.fixture
    def boss(self, client: Client) -> Client:
        client.force_login(User.objects.create_superuser("boss", last_login=timezone.now()))
        heartbeats.beat("scheduler", {}, name="scheduler@here")
        (order,) = fail()
        pauses.pause("agent", "shipping", reason="they move", by="olga")
        operator_verbs.resubmit(order.public_id, by=User.objects.get(username="boss"), reason="again")
        self.order = order
        return client

    @pytest.mark.parametrize("language", [code for code, _name in settings.LANGUAGES])
    def test_every_list_and_the_landing_page(self, boss: Client, language: str):
        boss.cookies[settings.LANGUAGE_COOKIE_NAME] = language
        told = {}
        for name in ["index", *sorted(set(lists()) - {"django_celery_beat_crontabschedule_changelist"})]:  # that one has times of day
            answer = boss.get(reverse(f"admin:{name}"))
            assert answer.status_code == 200, name
            told[name] = other_formats(answer.content.decode())

        assert len(told) > 20
        assert {name: found for name, found in told.items() if found} == {}

    def test_the_pages_of_an_order_its_history_and_other_rows(self, boss: Client):
        pages = [page(self.order), page(self.order).replace("change", "history")]
        for name in ("pause", "heartbeat", "submission", "alert", "notification"):
            html = boss.get(f"/admin/supervision/{name}/").content.decode()
            pages += re.findall(rf'href="(/admin/supervision/{name}/[^"?]+/change/)', html)[:1]

        for address in pages:
            html = boss.get(address).content.decode()
            assert other_formats(html) == [], address
            assert OURS.search(text_of(html)), address

    def test_the_pages_of_channels_and_deliveries_with_their_tries(self, boss: Client):
        at, tries = timezone.now(), [{"at": "2026-07-01T10:00:00Z", "try": 1, "status": 503, "error": "busy", "seconds": 0.5}]
        channel = Channel.objects.create(name="ops", kind="mail", address="a@b.example", failing_since=at)
        telling = Telling.objects.create(channel=channel, event="test", log=tries)
        hook = WebhookEndpoint.objects.create(public_id="wh_1", client="user:1", url="https://shop.example/hook", secret="whsec_c2VjcmV0")
        delivery = Delivery.objects.create(
            public_id="dlv_1", client="user:1", endpoint=hook, run=self.order.run, seq=1, event="order.error", message_id="m",
            body='{"type":"order.error","data":{"order":"o","seq":1,"status":"error"}}',
            log=[*tries, {"at": "2026-07-01T10:00:05Z", "asked_by": "ada"}],
        )  # fmt: skip

        for row in (channel, telling, delivery):
            html = boss.get(f"/admin/supervision/{row._meta.model_name}/{row.pk}/change/").content.decode()
            assert other_formats(html) == [], row
            assert OURS.search(text_of(html)), row

    def test_every_time_on_the_page_of_an_order_has_milliseconds(self, boss: Client):
        boss.post(page(self.order).replace("change", "desk"), {"text": "she called"})
        html = boss.get(page(self.order)).content.decode()
        assert "she called" in html

        found = OURS.findall(text_of(html).split("Facts", 1)[1])  # above them a sentence says how long the order waits
        assert len(found) > 5
        assert [time for time in found if "." not in time] == []


def test_the_helper_says_the_zone_of_the_viewer():
    at = timezone.datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=timezone.get_default_timezone())
    with timezone.override("Europe/Rome"), translation.override("it"):
        assert moment(at) == "2026-07-01 14:00:00 CEST"
        assert moment(at, exact=True) == "2026-07-01 14:00:00.123 CEST"
