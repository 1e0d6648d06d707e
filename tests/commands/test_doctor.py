"""doctor prints one line per finding and names the setting to change."""

from __future__ import annotations

import json
import re
import threading
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.utils.module_loading import autodiscover_modules
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from orders import doctor_probes
from supervision import checks
from supervision.management import base
from supervision.models import Channel
from supervision.operations import doctor
from supervision.operations.doctor import Finding, Level
from supervision.postgres import advice, fitness
from supervision.worker import heartbeats
from tests.api.test_readiness import full_disk
from tests.engine import kit

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


def levels(probe: Any) -> set[Level]:
    return {finding.level for finding in probe()}


def test_a_migrated_database_is_fine(db: None):
    [finding] = doctor.migrations()

    assert finding.level is Level.OK


@pytest.mark.parametrize("committing", ["on", "off"])
def test_a_server_that_forgets_is_a_failure(db: None, committing: str):
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL synchronous_commit = {committing}")
        off = set()
        for name in ("fsync", "full_page_writes", "synchronous_commit"):  # the tests' own server has them off
            cursor.execute(f"SHOW {name}")
            off |= {name} if cursor.fetchone() == ("off",) else set()

    version, *found = doctor.database()

    assert {finding.message.split(" is off:")[0] for finding in found} == off
    assert ("synchronous_commit" in off) is (committing == "off")
    assert all((finding.level, " = on" in finding.advice) == (Level.FAIL, True) for finding in found)
    assert version.message.startswith("PostgreSQL")


def test_a_session_that_may_freeze_in_a_transaction_is_warned_of_with_what_ends_it(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        _, direct = doctor.sessions()
        monkeypatch.setitem(settings.DATABASES, "direct", settings.DATABASES["default"])
        _, pooled = doctor.sessions()
        [option] = re.findall(r"-c (idle_in_transaction_session_timeout=\w+)", direct.advice)
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = %s", [option.partition("=")[2]])
        [fine] = doctor.sessions()

    assert (direct.level, pooled.level, fine.level) == (Level.WARN, Level.WARN, Level.OK)
    assert 'DATABASES["default"]: "OPTIONS"' in direct.advice
    assert "manage.py migrate" in pooled.advice
    assert doctor.SESSION in (ROOT / "docs" / "installing.md").read_text()


@pytest.mark.parametrize(
    ("setting", "value", "level"),
    [
        ("DateStyle", "German", Level.FAIL),
        ("standard_conforming_strings", "off", Level.FAIL),
        ("array_nulls", "off", Level.FAIL),
        ("default_transaction_isolation", "serializable", Level.WARN),
    ],
)
def test_a_setting_with_which_the_engine_does_not_work_is_named(db: None, setting: str, value: str, level: Level):
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL {setting} = '{value}'")
        *_, finding = doctor.sessions()

    assert (finding.level, finding.message.startswith(f"{setting} is {value}")) == (level, True)
    assert f"SET {setting} = " in finding.advice


def test_a_database_that_takes_no_writes_is_a_failure(db: None):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
        *_, finding = [found for found in doctor.database() if " is off:" not in found.message]

    assert (finding.level, finding.message) == (Level.FAIL, "takes no writes: default_transaction_read_only is on")


def test_tables_that_the_search_path_does_not_reach_are_named_before_anything_else(db: None):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL search_path = elsewhere")
        [finding] = doctor.database()

    assert (finding.level, finding.message.startswith("the tables are in the schema public, where ")) == (Level.FAIL, True)
    assert finding.message.endswith("its search_path is elsewhere")
    assert "SET search_path" in finding.advice


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_is_a_failure_also_where_readyz_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with full_disk(tmp_path) as tablespace:
        monkeypatch.setattr(fitness, "_GROW", (f"SET LOCAL temp_tablespaces = {tablespace}", fitness._GROW[1]))
        assert fitness.no_room() is None
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "disk" / "filler").write_bytes(b"x" * 2_000_000)
        found = [finding.message for finding in doctor.database() if finding.level is Level.FAIL]

    assert any("pg_tblspc" in message for message in found)  # the file that cannot grow


@pytest.mark.django_db(transaction=True)
def test_a_session_left_open_that_holds_others_up_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fitness, "HELD_SECONDS", 0.0)
    assert levels(doctor.locks) == {Level.OK}
    with kit.another_connection() as forgotten, kit.another_connection() as waits:
        pid = forgotten.info.backend_pid
        forgotten.execute("SET application_name = 'psql'")
        forgotten.execute("LOCK TABLE supervision_runnote IN ACCESS EXCLUSIVE MODE")
        thread = threading.Thread(target=lambda: waits.execute("SELECT FROM supervision_runnote"))
        thread.start()
        try:
            kit.until(lambda: levels(doctor.locks) == {Level.WARN})
            [finding] = doctor.locks()
        finally:
            forgotten.rollback()
            thread.join(20)

    assert finding.message.startswith("1 session waits, up to ")
    assert f"for a lock of psql (process {pid}, user " in finding.message
    assert finding.advice.endswith(f"SELECT pg_terminate_backend({pid})")


def test_clocks_that_agree_are_fine(db: None):
    assert levels(doctor.clock) == {Level.OK}


def test_roles_are_warned_about_until_they_beat(db: None):
    before = {finding.about: finding.level for finding in doctor.roles()}
    heartbeats.beat("worker-417", {"queues": ["submissions", "agent.stock"]})
    after = {finding.about: finding.level for finding in doctor.roles()}

    assert set(before.values()) == {Level.WARN}
    assert after["role scheduler"] is after["role agents"] is Level.OK
    assert after["role beat"] is Level.WARN


def test_no_one_who_is_told_of_incidents_is_a_warning(db: None, settings: Any):
    settings.SUPERVISION = {**settings.SUPERVISION, "OPERATOR_EMAILS": []}
    assert levels(doctor_probes.alerts) == {Level.WARN}

    channel = Channel.objects.create(name="mails", kind=Channel.Kind.MAIL, address="olga@example.com")
    assert levels(doctor_probes.alerts) == {Level.OK}

    channel.active = False
    channel.save()
    assert levels(doctor_probes.alerts) == {Level.WARN}
    settings.SUPERVISION = {**settings.SUPERVISION, "OPERATOR_EMAILS": ["olga@example.com"]}
    assert levels(doctor_probes.alerts) == {Level.OK}


@pytest.mark.parametrize(
    ("address", "hosts", "debug", "level"),
    [
        ("http://127.0.0.1:8000", ["shop.example.com", "127.0.0.1"], False, Level.WARN),
        ("http://127.0.0.1:8000", ["127.0.0.1"], True, Level.OK),
        ("https://shop.example.com", ["www.example.com"], False, Level.WARN),
        ("https://shop.example.com", [".example.com"], False, Level.OK),
    ],
)
def test_links_in_mails_that_lead_nowhere_are_a_warning(settings: Any, address: str, hosts: list[str], debug: bool, level: Level):
    settings.PUBLIC_URL, settings.ALLOWED_HOSTS, settings.DEBUG = address, hosts, debug

    [finding] = doctor_probes.links()

    assert (finding.level, "PUBLIC_URL" in finding.advice) == (level, level is Level.WARN)


def test_a_periodic_task_that_this_code_does_not_know_is_a_warning(db: None):
    assert levels(doctor.schedules) == {Level.OK}

    interval = IntervalSchedule.objects.create(every=1, period="days")
    PeriodicTask.objects.create(name="count the stock", task="orders.count_stock", interval=interval)
    PeriodicTask.objects.create(name="off", task="orders.gone", interval=interval, enabled=False)

    [finding] = doctor.schedules()
    assert (finding.level, finding.message) == (Level.WARN, "count the stock: this code has no task orders.count_stock")


def test_a_periodic_task_that_is_switched_off_is_a_warning(db: None):
    PeriodicTask.objects.filter(task="supervision.sweep").update(enabled=False)
    interval = IntervalSchedule.objects.create(every=1, period="days")
    PeriodicTask.objects.create(name="was sent once", task="supervision.jobs", interval=interval, enabled=False, one_off=True)

    [finding] = doctor.schedules()

    assert (finding.level, finding.message) == (
        Level.WARN,
        "look for overdue steps: it is switched off, so beat never sends supervision.sweep",
    )


@pytest.mark.parametrize(("every", "period"), [(1, "hours"), (2_000_000_000, "days")])
def test_a_sweep_that_comes_seldom_is_a_warning(db: None, every: int, period: str):
    interval = IntervalSchedule.objects.create(every=every, period=period)
    PeriodicTask.objects.filter(task="supervision.sweep").update(interval=interval)

    [finding] = doctor.schedules()

    assert finding.level is Level.WARN
    assert finding.message == f"look for overdue steps: beat sends supervision.sweep {interval} only, and expired steps wait as long"


@pytest.mark.parametrize(
    "edited",
    [{"one_off": True, "enabled": False}, {"one_off": True}, {"start_time": "2999-01-01T00:00Z"}, {"interval": None, "crontab": True}],
)
def test_a_sweep_that_no_longer_comes_is_a_warning_however_it_was_edited(db: None, edited: dict[str, Any]):
    if "crontab" in edited:
        edited = {**edited, "crontab": CrontabSchedule.objects.create(minute="0", hour="4")}
    PeriodicTask.objects.filter(task="supervision.sweep").update(**edited)

    [finding] = doctor.schedules()

    assert finding.level is Level.WARN
    assert finding.message.startswith("look for overdue steps: ")


def test_a_broker_that_is_away_is_a_failure_with_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.current_app.conf, "broker_url", "amqp://guest:secret@127.0.0.1:1//")
    monkeypatch.setattr(doctor.current_app.conf, "broker_write_url", "amqp://guest:secret@127.0.0.1:1//")

    [finding] = doctor.broker()

    assert finding.level is Level.FAIL
    assert "CELERY_BROKER_URL" in finding.advice
    assert "secret" not in finding.message


def test_services_that_are_away_are_failures_with_what_to_set(settings: Any):
    settings.STRIPE_API_BASE = settings.CARRIER_URL = "http://127.0.0.1:1"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    settings.STRIPE_WEBHOOK_SECRET, settings.CARRIER_WEBHOOK_SECRET = "whsec_x", "secret"

    findings = [*doctor_probes.payment(), *doctor_probes.carrier(), *doctor_probes.mail()]

    assert [finding.level for finding in findings] == [Level.FAIL] * 3
    assert [finding.advice.split()[1].split("=")[0] for finding in findings] == ["STRIPE_API_BASE", "CARRIER_URL", "EMAIL_URL"]


def test_simulators_are_advised_where_they_are_wanted_and_can_start(settings: Any, monkeypatch: pytest.MonkeyPatch):
    settings.STRIPE_API_BASE = "http://127.0.0.1:1"
    settings.DEBUG = False
    assert "simulators" not in next(iter(doctor_probes.payment())).advice
    settings.DEBUG = True
    assert "start manage.py simulators" in next(iter(doctor_probes.payment())).advice
    monkeypatch.setattr(doctor_probes, "find_spec", lambda name: None)
    assert "requirements-embedded.txt, and start manage.py simulators" in next(iter(doctor_probes.payment())).advice


def test_the_demos_simulators_are_found_on_other_ports(services: Any, settings: Any, tmp_path: Path):
    settings.STATE_DIR, settings.DEBUG = tmp_path, True
    (tmp_path / "simulators.json").write_text(json.dumps({"url": settings.STRIPE_API_BASE, "smtp_port": settings.EMAIL_PORT}))
    settings.STRIPE_API_BASE = settings.CARRIER_URL = doctor_probes.USUAL
    settings.EMAIL_PORT = 8025

    for probe in (doctor_probes.payment, doctor_probes.carrier, doctor_probes.mail):
        assert next(iter(probe())).level is Level.OK


def test_webhooks_without_a_secret_are_a_warning(services: Any, settings: Any):
    settings.STRIPE_WEBHOOK_SECRET = settings.CARRIER_WEBHOOK_SECRET = ""

    assert [(one.level, one.advice) for one in doctor_probes.payment()][1:] == [(Level.WARN, "set STRIPE_WEBHOOK_SECRET")]
    assert [(one.level, one.advice) for one in doctor_probes.carrier()][1:] == [(Level.WARN, "set CARRIER_WEBHOOK_SECRET")]


def test_a_contradiction_in_the_settings_is_a_finding(settings: Any):
    settings.SUPERVISION = {"SWEEP_SECOND": 3}

    assert any("supervision.E001" in finding.message for finding in doctor.settings_are_sane())


@pytest.fixture
def another_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project whose applications have given no advice."""
    monkeypatch.setattr(advice, "_said", [advice.OWN])


def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connection, "cursor", refuse)


def test_another_project_is_told_what_it_can_do_about_its_database(another_project: None, monkeypatch: pytest.MonkeyPatch):
    away(monkeypatch)
    [finding] = doctor.database()
    sqlite = SimpleNamespace(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3"}})
    monkeypatch.setattr(checks, "settings", sqlite)
    [wrong] = [message for message in checks.check_celery(None) if message.id == "supervision.E016"]

    assert (finding.message, finding.advice) == (
        "connection refused",
        'start PostgreSQL, and name it in DATABASES["default"] of the settings',
    )
    assert 'Start PostgreSQL, and name it in DATABASES["default"] of the settings' in wrong.hint
    assert "django.db.backends.postgresql" in wrong.hint
    monkeypatch.setattr(base, "connections", {"default": SimpleNamespace(connection=None)})
    assert 'start PostgreSQL, and name it in DATABASES["default"] of the settings (refused)' in base.explain(OperationalError("refused"))


def test_the_shop_names_its_own_way_to_a_database(monkeypatch: pytest.MonkeyPatch):
    away(monkeypatch)

    assert [finding.advice for finding in doctor.database()] == [
        "start ./run demo, or set DATABASE_URL=postgres://user:password@host:port/database"
    ]


def fake(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))


def test_the_command_exits_with_1_when_something_fails(monkeypatch: pytest.MonkeyPatch):
    fake(monkeypatch, Finding("database", Level.OK, "fine"), Finding("broker", Level.FAIL, "away", "start it"))
    out = StringIO()

    with pytest.raises(SystemExit) as stopped:
        call_command("doctor", stdout=out)

    assert stopped.value.code == 1
    assert out.getvalue().splitlines() == [
        "ok    database: fine",
        "fail  broker: away -> start it",
        "1 ok, 0 warnings, 1 failures",
    ]


def test_warnings_alone_do_not_fail(monkeypatch: pytest.MonkeyPatch):
    fake(monkeypatch, Finding("beat", Level.WARN, "never seen", "start it"))
    out = StringIO()

    call_command("doctor", "--json", stdout=out)

    assert json.loads(out.getvalue()) == {
        "ok": True,
        "findings": [{"about": "beat", "level": "warn", "message": "never seen", "advice": "start it"}],
    }


def test_a_probe_that_breaks_is_a_finding_and_does_not_end_the_examination(monkeypatch: pytest.MonkeyPatch):
    def broken() -> Any:
        raise ValueError("no idea")

    autodiscover_modules("doctor_probes")  # they register themselves when they are first imported
    monkeypatch.setattr(doctor, "_probes", {})
    doctor.register("one", broken)
    doctor.register("two", lambda: [Finding("two", Level.OK, "fine")])

    assert list(doctor.examine()) == [
        Finding("one", Level.FAIL, "ValueError: no idea"),
        Finding("two", Level.OK, "fine"),
    ]
