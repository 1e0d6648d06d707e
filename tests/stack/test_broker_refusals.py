"""The doctor says what a broker lacks, or that it answers and takes no messages. The servers are the tests' own: all users meet it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from redis import Redis

from chaos import servers
from chaos.brokers import rabbitmqctl, running
from chaos.shop import scratch_database
from supervision.operations import doctor
from supervision.operations.doctor import Finding, Level
from supervision.transports import rabbitmq
from tests import services
from tests.support.relay import Relay
from tests.support.shop import until


def examined(url: str, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """What the doctor says of the broker at this URL."""
    monkeypatch.setattr(doctor.current_app.conf, "broker_url", url)
    monkeypatch.setattr(doctor.current_app.conf, "broker_write_url", url)
    [finding] = doctor.broker()
    return finding


@pytest.mark.nightly
@pytest.mark.amqp
@pytest.mark.timeout(600)
def test_an_alarm_of_rabbitmq_is_a_failure_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = servers.rabbitmq_server(tmp_path)
    services.require_service("RabbitMQ's program", found, "install rabbitmq-server")
    server, command, env = found
    url = f"amqp://guest:guest@127.0.0.1:{server.port}//"
    with running(server):
        rabbitmqctl("await_startup", command=command, env=env)
        assert examined(url, monkeypatch).level is Level.OK

        rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB", command=command, env=env)
        alarm = until(lambda: (said := examined(url, monkeypatch)).level is Level.FAIL and said, what="the alarm")
        rabbitmqctl("set_vm_memory_high_watermark", "0.9", command=command, env=env)

        assert "takes no messages: an alarm for its memory or disk stands" in alarm.message
        assert "orders wait" in alarm.advice
        until(lambda: examined(url, monkeypatch).level is Level.OK, what="the alarm's end")


@pytest.mark.amqp
def test_a_silent_rabbitmq_is_a_failure(monkeypatch: pytest.MonkeyPatch, amqp_url: str):
    monkeypatch.setattr(rabbitmq, "ANSWER_SECONDS", 1.0)
    parts = urlsplit(amqp_url)
    relay = Relay(place=(parts.hostname, parts.port or 5672))
    relay.open()
    real = rabbitmq.Channel.refusal
    monkeypatch.setattr(rabbitmq.Channel, "refusal", lambda channel: (relay.swallow(), real(channel))[1])  # once it is connected

    finding = examined(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{relay.port}").geturl(), monkeypatch)

    assert finding.level is Level.FAIL
    assert "takes no messages: no answer in 1 s" in finding.message
    relay.close()


@pytest.mark.redis
def test_a_full_redis_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server = servers.redis_server(tmp_path)
    services.require_service("Redis' program", server, "install redis-server")
    url = f"redis://127.0.0.1:{server.port}/0"
    with running(server), Redis.from_url(url) as client:
        assert examined(url, monkeypatch).level is Level.OK

        client.config_set("maxmemory", "1")
        full = examined(url, monkeypatch)
        client.config_set("maxmemory", "0")

        assert full.level is Level.FAIL
        assert "takes no messages: " in full.message
        assert "maxmemory" in full.message
        assert examined(url, monkeypatch).level is Level.OK


@pytest.mark.django_db
@pytest.mark.parametrize("installed", [False, True])
def test_a_database_without_pgmq_is_told_from_one_whose_pgmq_a_role_may_not_use(installed: bool, monkeypatch: pytest.MonkeyPatch):
    """Both errors say `pgmq`, in the language of the server."""
    options = doctor.current_app.conf.broker_transport_options
    with scratch_database() as url:
        try:
            if installed:
                with psycopg.connect(url) as there:
                    there.execute("CREATE SCHEMA pgmq")
            doctor.current_app.conf.broker_transport_options = {"conn_string": f"{url}?options=-crole%3Dpg_monitor", "pool_timeout": 5}
            finding = examined("pgmq://", monkeypatch)
        finally:
            doctor.current_app.conf.broker_transport_options = options

    assert (finding.level, "pgmq" in finding.message) == (Level.FAIL, True)
    assert ("manage.py migrate" in finding.advice) is not installed
