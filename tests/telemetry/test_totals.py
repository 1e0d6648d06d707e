"""Counters and histograms tell the truth: what `/metrics` adds up is what the tables hold, also after restarts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils.timezone import now
from prometheus_client.parser import text_string_to_metric_families

from supervision import testing
from supervision.incidents import lifecycle, pulse
from supervision.insight import totals
from supervision.models import Alert, Heartbeat, Metric, Run, StepEvent
from supervision.recovery import supervisor
from supervision.telemetry import measures
from supervision.worker import consumption_check, heartbeats
from tests.shopping import a_product, place

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(sas, services):
    a_product(available=500)
    measures.forget()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE supervision_metric, supervision_pulse, supervision_pulsetotal")
    return sas


def scraped() -> dict[str, float]:
    """Each sample of `/metrics` by its name and labels."""
    measures.flush()
    answer = Client().get("/metrics")
    assert answer.status_code == 200, answer.content
    families = text_string_to_metric_families(answer.content.decode())
    return {_name(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def _name(name: str, labels: dict[str, str]) -> str:
    return name + ("{" + ",".join(f"{key}={value}" for key, value in sorted(labels.items())) + "}" if labels else "")


def look() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_pulse SET recorded_at = recorded_at - interval '1 minute'")
    lifecycle.look()


def adds_up(found: dict[str, float]) -> None:
    """The outcomes are those of the tables."""
    states = [Run.objects.filter(process_state=state).count() for state in ("Processed", "Cancelled")]
    assert [found[f"sas_orders_finished_total{{outcome={name}}}"] for name in ("processed", "cancelled")] == states
    assert found["sas_orders_stopped_total"] == Alert.objects.filter(kind="error").count()
    assert found["sas_order_seconds_count"] == found["sas_order_seconds_bucket{le=+Inf}"] == states[0]


def test_outcomes_and_attempts_add_up_to_the_orders_in_the_tables(shop):
    for _ in range(3):
        place()
    place(payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    look()

    found = scraped()

    adds_up(found)
    assert found["sas_orders_finished_total{outcome=processed}"] == 3
    assert found["sas_orders_accepted_total{workflow=fulfil-order}"] == 4
    assert found["sas_submissions_consumed_total{outcome=run}"] == 4
    done = {key: value for key, value in found.items() if key.startswith("sas_step_attempts_total") and "outcome=done" in key}
    assert sum(done.values()) == StepEvent.objects.filter(to_state="Processed", position__isnull=False).count()
    assert found["sas_step_failures_total{agent=payment,code=card_declined}"] == 1
    timed = {key: value for key, value in found.items() if key.startswith("sas_step_seconds_count")}
    assert sum(timed.values()) == 4 * 3 + 2
    waits = {key: value for key, value in found.items() if key.startswith("sas_call_wait_seconds_count")}
    calls = {"payment": 4, "shipping": 3, "email": 3}  # stock works inside its transaction
    assert waits == {f"sas_call_wait_seconds_count{{agent={name}}}": number for name, number in calls.items()}
    assert found["sas_service_call_seconds_count{service=carrier,status=2xx}"] == 3
    spent = sum((run.finished_at - run.created_at).total_seconds() for run in Run.objects.filter(process_state="Processed"))
    assert found["sas_order_seconds_sum"] == pytest.approx(spent)


def test_totals_outlive_the_minutes_they_were_counted_in(shop):
    place()
    shop.run()
    look()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE supervision_run SET created_at = created_at - interval '9 days', finished_at = finished_at - interval '9 days'"
        )
        cursor.execute("UPDATE supervision_pulse SET minute = minute - interval '9 days'")
        cursor.execute("INSERT INTO supervision_pulse (minute, recorded_at) VALUES (date_trunc('minute', now()), 'epoch')")
    place()
    shop.run()

    look()

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM supervision_pulse WHERE minute < now() - interval '8 days'")
        assert cursor.fetchone() == (0,)
    adds_up(scraped())
    assert scraped()["sas_orders_finished_total{outcome=processed}"] == 2


def test_processes_add_to_one_series_and_what_cannot_be_written_is_kept(shop, monkeypatch):
    measures.SWEEPS.add("done")
    measures.SWEEP_SECONDS.observe(0.03)
    measures.flush()
    measures.forget()  # another process
    measures.SWEEPS.add("done", number=2)
    measures.SWEEP_SECONDS.observe(99.0)
    with monkeypatch.context() as broken:
        broken.setattr(measures.db, "run", _refuse)
        with pytest.raises(RuntimeError):
            measures.flush()
    measures.SWEEPS.add("done")

    found = scraped()

    assert found["sas_sweeps_total{outcome=done}"] == 4
    assert (found["sas_sweep_seconds_bucket{le=0.025}"], found["sas_sweep_seconds_bucket{le=0.05}"]) == (0, 1)
    assert (found["sas_sweep_seconds_count"], found["sas_sweep_seconds_sum"]) == (2, pytest.approx(99.03))


def _refuse(*_args, **_named):
    raise RuntimeError("the database is away")


def test_label_values_are_bounded(shop, monkeypatch):
    monkeypatch.setattr(measures, "MOST_SERIES", 3)

    for number in range(50):
        measures.UNSENT.add(f"kind-{number}")
    measures.flush()

    assert Metric.objects.filter(name="sas_publish_failures_total").count() == 4
    assert scraped()["sas_publish_failures_total{message=other}"] == 47


def test_a_route_is_counted_and_not_its_url(shop):
    Client().get("/api/v1/orders/no-such-order-0123456/")
    Client().get("/nothing/here/4711")

    found = [key for key in scraped() if key.startswith("sas_http_request_seconds_count")]

    assert any("publicid" in key for key in found)
    assert not any("4711" in key or "0123456" in key for key in found)


def test_what_a_sweep_recovers_is_counted_by_its_decision(shop):
    place()
    testing.schedule()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'")

    supervisor.sweep_once()

    found = scraped()
    assert found["sas_recovered_total{decision=redispatched}"] == 1
    assert found["sas_sweeps_total{outcome=done}"] == 1


def test_a_scrape_reads_no_more_after_a_million_orders(shop):
    """A week of full minutes is one row of totals and the last ten minutes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO supervision_pulse (minute, recorded_at, processed, classes, counts, seconds)"
            " SELECT date_trunc('minute', now()) - n * interval '1 minute', now() - interval '1 hour', 100, '{3,9,12}', '{50,40,10}', 70"
            " FROM generate_series(0, 9999) n"
        )
        cursor.execute(pulse._BEGIN_TOTAL)
        cursor.execute(pulse._FOLD)
        cursor.execute("SELECT count(*) FROM supervision_pulse WHERE minute >= (SELECT until FROM supervision_pulsetotal)")
        assert cursor.fetchone() == (11,)

    found = scraped()

    assert found["sas_orders_finished_total{outcome=processed}"] == found["sas_order_seconds_count"] == 1_000_000
    assert found["sas_order_seconds_sum"] == 700_000


def test_a_minute_that_the_supervisor_moves_into_the_totals_meanwhile_is_counted_once(shop, monkeypatch):
    """A counter that falls, if only for one scrape, has begun anew for Prometheus: all orders since the first one are added again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO supervision_pulse (minute, recorded_at, processed, stopped, classes, counts, seconds)"
            " SELECT date_trunc('minute', now()) - n * interval '1 minute', now(), 10, 1, '{3,9}', '{6,4}', 7 FROM generate_series(0, 19) n"
        )
    read = totals.db.fetch
    read(pulse._BEGIN_TOTAL)

    def moved_after(statement, params=None):
        found = read(statement, params)
        read(pulse._FOLD)
        return found

    monkeypatch.setattr(totals.db, "fetch", moved_after)
    seen = [totals.ends() for _twice in range(2)]

    assert [(each.processed, each.stopped, each.seconds, dict(each.classes)[3], dict(each.classes)[9]) for each in seen] == [
        (200, 20, 140.0, 120, 80)
    ] * 2


def test_a_needed_role_that_no_process_has_is_told_and_notes_are_no_processes(shop):
    def alive() -> dict[str, float]:
        return {name[25:-1]: value for name, value in scraped().items() if name.startswith("sas_processes_alive{role=")}

    assert alive() == {"scheduler": 0, "agents": 0, "supervisor": 0, "beat": 0}

    heartbeats.beat("supervisor-sweep", {}, name="the sweep")
    consumption_check.send_round()
    assert Heartbeat.objects.count() == 2
    assert alive() == {"scheduler": 0, "agents": 0, "supervisor": 0, "beat": 0}

    heartbeats.beat("agents-payment", {"queues": ["agent.payment"]}, name="agents-payment@here")
    heartbeats.beat("all", {"queues": ["submissions", "supervisor", "agent.stock"]}, name="all@here")
    assert alive() == {"scheduler": 1, "agents": 2, "supervisor": 1, "beat": 1, "agents-payment": 1, "all": 1}

    Heartbeat.objects.update(seen_at=now() - timedelta(days=2))
    heartbeats.delete_old()
    assert alive() == {"scheduler": 0, "agents": 0, "supervisor": 0, "beat": 0}
