"""broker_users and broker_topology: nothing without --apply, one line on errors, and the same result when repeated."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import amqp
import psycopg
import pytest
from django.core.management import CommandError
from django.db import connection

from supervision import celery
from supervision.apps import install_broker
from supervision.rabbitmq import roles
from tests import services
from tests.commands.conftest import Manage
from tests.shopping import an_account

pytestmark = pytest.mark.django_db


def test_without_apply_it_shows_each_role_with_its_permissions_and_changes_nothing(manage: Manage):
    said = manage("broker_users", "--vhost", "shop", "--rabbitmqctl", "false")

    assert len(said.lines) == 3 * len(roles.ROLES)
    assert "rabbitmqctl set_permissions -p shop sas-web '^$' '^(supervision\\.tasks)$' '^$'" in said.lines
    assert "rabbitmqctl set_topic_permissions -p shop sas-beat supervision.tasks '^(scheduler|supervisor)$' '^$'" in said.lines
    assert "--apply" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "CELERY_BROKER_URL names no RabbitMQ"),
        (("--vhost", "/", "--producer", "two words"), "'two words' is no name of an account"),
        (("--vhost", "/", "--producer", "sas-web"), "begins with 'sas-'"),
        (("--vhost", "/", "--producer", "nobody-here"), "nobody-here is no client's account here"),
        (("--vhost", "/", "--rotate", "webb"), "--rotate webb"),
        (("--vhost", "/", "--api", "ftp://x"), "--api: expected http://"),
        (("--vhost", "/", "--api", "http://a:b@127.0.0.1:9", "--apply"), "127.0.0.1:9"),
        (("--vhost", "/", "--rabbitmqctl", "/no/such/command", "--apply"), "/no/such/command"),
        (("--vhost", "/", "--rabbitmqctl", "false", "--apply"), "false -q: it ended with 1"),
        (("--vhost", "/", "--revoke", "a", "--rotate", "web"), "--revoke stands alone"),
    ],
)
def test_a_mistake_is_told_in_one_line(manage: Manage, arguments: tuple[str, ...], words: str):
    with pytest.raises(CommandError) as refused:
        manage("broker_users", *arguments)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_topology_is_for_rabbitmq_alone(manage: Manage):
    with pytest.raises(CommandError, match="names no RabbitMQ"):
        manage("broker_topology")


@pytest.fixture
def vhost() -> Iterator[str]:
    services.require_rabbitmqctl()
    with services.own_vhost() as url:
        yield url.rpartition("/")[2]


@pytest.mark.amqp
def test_a_producer_keeps_its_password_until_it_is_rotated_and_is_gone_once_revoked(manage: Manage, vhost: str, tmp_path: Path):
    name = f"acme-{uuid.uuid4().hex[:8]}"
    an_account(name, "client")

    def apply(*more: str) -> str:
        return manage("broker_users", "--vhost", vhost, "--apply", *more).out

    def signs_in(password: str) -> bool:
        try:
            with amqp.Connection("127.0.0.1:5672", userid=name, password=password, virtual_host=vhost):
                return True
        except amqp.exceptions.AMQPError:
            return False

    first = apply("--producer", name).rpartition(f"{name}:")[2].partition("@")[0]
    assert signs_in(first)
    assert apply("--producer", name).strip() == f"{name}: as it was, its password too"
    assert signs_in(first)
    second = apply("--producer", name, "--rotate", name).rpartition(f"{name}:")[2].partition("@")[0]
    assert signs_in(second)
    assert not signs_in(first)
    (tmp_path / name).write_text("a-password-of-my-own\n")
    assert "amqp://" not in apply("--producer", name, "--passwords", str(tmp_path))
    assert signs_in("a-password-of-my-own")
    assert apply("--revoke", name).strip() == f"{name}: revoked"
    assert not signs_in("a-password-of-my-own")
    assert apply("--revoke", name).strip() == f"{name}: there is no such user"


@pytest.mark.amqp
def test_an_administrator_is_no_users_command_to_change(manage: Manage, vhost: str):
    an_account("guest", "client")

    for arguments in (("--producer", "guest"), ("--revoke", "guest")):
        with pytest.raises(CommandError, match="guest has the tag administrator"):
            manage("broker_users", "--vhost", vhost, "--apply", *arguments)


def test_migrate_installs_pgmq_in_the_database_that_its_url_names(monkeypatch: pytest.MonkeyPatch):
    given = {**connection.get_connection_params()}
    name = f"pgmq_{uuid.uuid4().hex[:8]}"
    server = {key: given[key] for key in ("host", "port", "user", "password") if given.get(key)}
    with psycopg.connect(**server, dbname="postgres", autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
        try:
            monkeypatch.setattr(celery, "broker_is_pgmq", lambda: True)
            monkeypatch.setattr(celery, "pgmq_elsewhere", lambda: psycopg.conninfo.make_conninfo(**server, dbname=name))
            install_broker()
            install_broker()
            with psycopg.connect(**server, dbname=name) as there:
                assert there.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL").fetchone() == (True,)
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[arg-type]
    with pytest.raises(CommandError, match="CELERY_BROKER_URL: PGMQ could not be installed"):
        install_broker()


@pytest.mark.parametrize(
    ("url", "elsewhere"), [("pgmq://", False), ("pgmq://user@host/db", True), ("pgmq://user@host:5433/db", True), ("pgmq:///db", True)]
)
def test_an_address_of_pgmq_names_its_database_or_leaves_it_to_the_default_one(url: str, elsewhere: bool):
    program = (
        "from sasproject import celery_app; from supervision import celery; print(celery.broker_is_pgmq(), bool(celery.pgmq_elsewhere()))"
    )
    env = {**os.environ, "CELERY_BROKER_URL": url, "DEBUG": "1", "DJANGO_SETTINGS_MODULE": "sasproject.settings"}

    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", str(elsewhere)]
