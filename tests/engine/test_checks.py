"""System checks find each contradiction in the settings at start and report its id and a hint."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage

from supervision import checks, conf

ROOT = Path(__file__).resolve().parents[2]


def found(check: Any) -> dict[str, CheckMessage]:
    return {message.id: message for message in check(app_configs=None)}


def supervision(settings: Any, **values: Any) -> dict[str, CheckMessage]:
    settings.SUPERVISION = values
    return found(checks.check_supervision)


def test_the_defaults_are_sane(settings: Any):
    assert supervision(settings) == {}
    assert supervision(settings, **conf.DEFAULTS) == {}


def test_an_unknown_key_is_an_error_with_the_nearest_known_one(settings: Any):
    message = supervision(settings, SWEEP_SECOND=3)["supervision.E001"]

    assert "SWEEP_SECOND" in message.msg
    assert "Did you mean 'SWEEP_SECONDS'?" in message.hint


def test_a_key_like_no_other_lists_the_known_ones(settings: Any):
    assert "Known: " in supervision(settings, ZZZ=3)["supervision.E001"].hint


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SWEEP_SECONDS", 0),
        ("SWEEP_SECONDS", -1.5),
        ("SWEEP_SECONDS", "5"),
        ("SWEEP_SECONDS", None),
        ("COMPLETE_WITHIN", 0),
        ("LONG_WAIT", timedelta(0)),
        ("FAILURE_THRESHOLD", 0),
        ("FAILURE_THRESHOLD", 2.5),
        ("FAILURE_THRESHOLD", True),
        ("COHORT", 0),
        ("LINGER_SECONDS", -0.1),
    ],
)
def test_a_number_that_makes_no_sense_is_an_error(settings: Any, key: str, value: Any):
    message = supervision(settings, **{key: value})["supervision.E002"]

    assert key in message.msg
    assert message.hint


@pytest.mark.parametrize(
    ("key", "value"), [("LINGER_SECONDS", 0), ("COMPLETE_WITHIN", None), ("LONG_WAIT", timedelta(minutes=10)), ("COHORT", 1)]
)
def test_a_number_that_makes_sense_is_none(settings: Any, key: str, value: Any):
    assert supervision(settings, **{key: value}) == {}


def test_an_unknown_policy_is_an_error(settings: Any):
    said = supervision(settings, ON_EXHAUSTED="retry", ON_PERMANENT="wait")

    assert "error, wait, compensate, skip" in said["supervision.E003"].hint
    assert "error, compensate, skip" in said["supervision.E004"].hint


def test_one_address_without_its_brackets_is_an_error(settings: Any):
    assert "supervision.E005" in supervision(settings, OPERATOR_EMAILS="ops@example.com")


def test_a_sweep_rarer_than_the_shortest_step_is_a_warning(settings: Any):
    said = supervision(settings, SWEEP_SECONDS=60, LEASE_SECONDS=180)

    assert set(said) == {"supervision.W020"}
    assert "may take only" in said["supervision.W020"].msg


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"COMPLETE_WITHIN": timedelta(days=2)}, "W021"),
        ({"ON_EXHAUSTED": "wait", "LONG_WAIT": 1}, "W022"),
        ({"LEASE_SECONDS": 5, "SWEEP_SECONDS": 5}, "W023"),
        ({"PICKUP_SECONDS": 1}, "W024"),
        ({"COHORT": 200, "IN_FLIGHT": 100}, "W025"),
    ],
    ids=["a step longer than its workflow", "a long wait shorter than the back-off", "a lease shorter than the sweep",
         "an alert before the next sweep", "a cohort larger than all in flight"],
)  # fmt: skip
def test_two_settings_that_do_not_fit_together_are_a_warning(settings: Any, values: dict[str, Any], warning: str):
    assert f"supervision.{warning}" in supervision(settings, **values)


def test_a_setting_under_its_old_name_still_works_and_is_a_warning(settings: Any):
    assert set(supervision(settings, IDLE_AGENTS_CONSUME=False)) == {"supervision.W026"}
    assert conf.get().local_pickup is False


@pytest.mark.parametrize(("allowed", "said"), [(False, "supervision.E006"), (True, "supervision.W008")])
def test_failpoints_need_to_be_allowed_and_are_then_pointed_out(settings: Any, allowed: bool, said: str):
    settings.FAILPOINTS, settings.ALLOW_FAILPOINTS = "agent.after_effect=kill9", allowed

    assert set(found(checks.check_failpoints)) == {said}


def test_an_unknown_failpoint_is_an_error_with_the_nearest_known_one(settings: Any):
    settings.FAILPOINTS, settings.ALLOW_FAILPOINTS = "agent.after_efect=kill9", True

    assert "agent.after_effect" in found(checks.check_failpoints)["supervision.E007"].hint


def test_no_failpoints_are_no_news(settings: Any):
    settings.FAILPOINTS = ""

    assert found(checks.check_failpoints) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CELERY_TASK_ALWAYS_EAGER", True, "supervision.E010"),
        ("CELERY_ACCEPT_CONTENT", ["json", "pickle"], "supervision.E011"),
        ("CELERY_TASK_SERIALIZER", "pickle", "supervision.E011"),
        ("CELERY_RESULT_BACKEND", "redis://", "supervision.W012"),
        ("CELERY_TASK_ACKS_LATE", True, "supervision.W013"),
        ("CELERY_TASK_PUBLISH_RETRY", True, "supervision.W014"),
        ("CELERY_TASK_TIME_LIMIT", 30, "supervision.W015"),
    ],
)
def test_an_option_of_celery_that_works_against_the_engine_is_found(settings: Any, name: str, value: Any, expected: str):
    setattr(settings, name, value)

    assert set(found(checks.check_celery)) == {expected}


def test_the_project_s_own_options_of_celery_are_fine():
    assert found(checks.check_celery) == {}


def test_times_without_a_time_zone_are_an_error(settings: Any):
    assert checks.check_times(app_configs=None) == []

    settings.USE_TZ = False

    [message] = checks.check_times(app_configs=None)
    assert (message.id, message.hint) == ("supervision.E023", "USE_TZ = True, which is Django's default.")


class Elsewhere:
    """A router that leads the engine's tables to another database."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "engine" if model._meta.app_label == "supervision" else None

    db_for_write = db_for_read

    def allow_migrate(self, database: str, label: str, **hints: Any) -> bool:
        return (database == "engine") == (label == "supervision")


def test_a_router_that_leads_the_engines_tables_elsewhere_is_an_error(settings: Any):
    assert checks.check_routers(app_configs=None) == []

    settings.DATABASE_ROUTERS = [Elsewhere()]

    assert [message.msg for message in checks.check_routers(app_configs=None)] == [
        "DATABASE_ROUTERS leads reads of the engine's tables to 'engine', not to 'default'.",
        "DATABASE_ROUTERS leads writes of the engine's tables to 'engine', not to 'default'.",
        "DATABASE_ROUTERS makes none of the engine's tables in 'default'.",
    ]


def test_a_way_around_the_pooler_that_tests_do_not_mirror_is_a_warning(settings: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(checks.check_direct) == {}
    direct = {**settings.DATABASES["default"], "TEST": {"MIRROR": None}}
    monkeypatch.setitem(settings.DATABASES, "direct", direct)
    assert found(checks.check_direct)["supervision.W027"].hint == "DATABASES['direct']['TEST'] = {'MIRROR': 'default'}."

    direct["TEST"] = {"MIRROR": "default"}
    assert found(checks.check_direct) == {}


def test_a_default_database_that_is_no_postgresql_is_named_and_nothing_else_is_asked_of_it(tmp_path: Any):
    words = (
        "from django.conf import settings; settings.configure(SECRET_KEY='x', USE_TZ=True,"
        " INSTALLED_APPS=['django.contrib.admin', 'django.contrib.auth', 'django.contrib.contenttypes', 'django_celery_beat',"
        " 'supervision', 'tests.support.travellers'], AUTH_USER_MODEL='travellers.Traveller', CELERY_BROKER_URL='memory://',"
        " DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'db.sqlite3'}});"
        " import django; django.setup(); from django.core.management import call_command; call_command('check', tags=['supervision'])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": ""}
    checked = subprocess.run([sys.executable, "-c", words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)

    assert "(supervision.E016) The default database's engine is django.db.backends.sqlite3" in checked.stderr, checked.stderr
    assert checked.stderr.count("supervision.E0") == 1
