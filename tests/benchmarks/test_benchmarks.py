"""The benchmark's own parts: counting, tables, figures and refusals. These tests time nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.conf import settings

from benchmarks import ledger, report
from benchmarks.brokers import NotMeasurable
from benchmarks.environment import DISTRIBUTIONS, Peers, requirements
from benchmarks.goals import GOALS
from benchmarks.lab import open_lab
from benchmarks.machine import Parties
from benchmarks.plan import ALL_PEERS, ALL_ROWS, PROFILES, chosen
from benchmarks.results import Results, load
from benchmarks.rows import ROWS
from benchmarks.systems import SYSTEMS
from benchmarks.tables import as_markdown, tables

ROOT = Path(settings.BASE_DIR)
COUNT = "import time; from benchmarks import ledger\nfor _ in range(3):\n    ledger.step(); ledger.order(time.monotonic() - 0.5)"


def a_run(**rates: tuple[float, ...]) -> Results:
    """Results of a throughput row: one rate per pass and system."""
    results = Results("quick", facts={"Python": "3"})
    for entry, values in rates.items():
        name = entry.replace("_", "-")
        results.titles[f"throughput/{name}"] = f"<{name}> & more"
        for number, value in enumerate(values):
            cpu = {"workers": 100.0, "client": 50.0, "database": 200.0, "broker": 10.0}
            facts = {"orders_per_second": value, "cpu_us": cpu, "cpu_us_all": 360.0, "wal_bytes": 7000.0, "resident_mb": [90.0, 80.0]}
            results.add("throughput", name, number, facts)
    return results


def test_the_ledger_adds_up_what_several_processes_have_done(tmp_path):
    environment = {**os.environ, ledger.VARIABLE: str(tmp_path), "PYTHONPATH": str(ROOT)}
    counting = [subprocess.Popen([sys.executable, "-c", COUNT], env=environment) for _ in range(2)]
    assert [process.wait(20) for process in counting] == [0, 0]

    reader = ledger.Reader(tmp_path)

    assert reader.counts() == (6, 6)
    durations = reader.seconds()
    assert len(durations) == 6
    assert min(durations) >= 0.5
    assert reader.seconds(reader.marks()) == []


def test_cpu_time_is_that_of_a_process_and_its_children():
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here")
    worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        parties = Parties(workers=[worker.pid])
        deadline = time.monotonic() + 20
        while (used := parties.cpu_seconds()["workers"]) < 0.1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert used >= 0.1
        assert parties.cpu_seconds()["client"] == 0
        assert parties.resident_mb()[0] > 1
    finally:
        worker.kill()
        worker.wait()


def test_a_ratio_compares_what_was_measured_in_the_same_pass():
    results = a_run(ours_4=(1000, 4000, 3000), dbos=(100, 200, 100))

    ratio = results.ratio(("throughput", "ours-4"), ("throughput", "dbos"), "orders_per_second")

    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (20, 10, 30)


def test_a_goal_that_was_not_measured_has_no_verdict():
    results = a_run(ours_4=(1000,), dbos=(200,))

    verdicts = {goal.title: goal.verdict(results) for goal in GOALS}

    assert verdicts["no-op orders/s against DBOS"] == ("5.00 x", "no")
    assert verdicts["CPU per order, all processes"] == ("360 us", "yes")
    assert verdicts["no-op orders/s against Restate"] is None


def test_the_lead_behind_a_network_is_the_smallest_of_all_peers_and_delays():
    results = Results("full")
    for entry, rate, median in [
        ("ours-4+0ms", 1000, 10), ("ours-4+1ms", 900, 17), ("ours-4+2ms", 800, 30),
        ("chain+0ms", 100, 12), ("chain+1ms", 60, 30), ("chain+2ms", 100, 40),
    ]:  # fmt: skip
        results.add("network", entry, 0, {"orders_per_second": rate, "p50_ms": median})

    verdicts = {goal.title: goal.verdict(results) for goal in GOALS}

    assert verdicts["behind a network: the lead over each peer against the lead without"] == ("0.80 x", "no")
    assert verdicts["1 ms more to database and broker, orders/s against none"] == ("0.90 x", "yes")
    assert verdicts["1 ms more to database and broker, median at 10 orders/s, more by"] == ("7.00 ms", "yes")


def test_what_failed_or_did_not_end_is_named():
    results = a_run(ours_4=(1000,))
    results.add("throughput", "dbos", 0, {"error": "it fell over"})
    results.add("drain", "drain", 0, {"steps_per_second": 1.0, "unfinished": 3})

    problems = results.errors()

    assert problems == ["throughput, dbos, pass 1: it fell over", "drain, drain, pass 1: 3 orders did not end in time"]
    assert results.entries("throughput") == ["ours-4"]


@pytest.mark.parametrize("row", ["throughput", "latency"])
def test_local_pickup_is_measured_on_and_off(row):
    env = {entry.name: SYSTEMS[entry.name].env for entry in ROWS[row].entries(PROFILES["smoke"]) if entry.name.startswith("ours-")}

    assert env == {"ours-4": {}, "ours-scheduled": {"SUPERVISION_LOCAL_PICKUP": "0"}}


def test_results_survive_being_kept(tmp_path):
    results = a_run(ours_4=(1000, 2000), chain=(100, 200))

    assert load(results.save(tmp_path / "kept.json")) == results


def test_the_report_replaces_what_the_last_one_wrote_and_nothing_else(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(f"before\n\n{report.BEGIN}\n\nold\n\n{report.END}\n\nafter\n")
    results = a_run(ours_4=(1000, 2000), chain=(100, 200))
    results.skipped["Restate, 1 endpoint process"] = "npm is missing, " + "and much more is to be said about it, " * 5

    report.write([results], tmp_path)
    report.write([results], tmp_path)

    text = page.read_text()
    assert text.startswith(f"before\n\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\n\nafter\n")
    assert "old" not in text
    assert text.count("### Goals") == 1
    assert "npm is missing" in text
    assert all(len(line) <= 130 for line in text.splitlines() if not line.startswith("|"))
    picture = ElementTree.parse(tmp_path / "performance.svg").getroot()  # noqa: S314 - our own
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"


def test_the_report_of_several_runs_names_the_rows_of_each_and_takes_the_last_measurement_of_a_row(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(f"{report.BEGIN}\n\n{report.END}\n")
    first, second = a_run(ours_4=(1000, 2000), chain=(100, 200)), Results("full", when="2026-11-27 06:00")
    first.add("drain", "drain", 0, {"steps_per_second": 1.0})
    second.facts, second.titles = first.facts, {"drain/drain": "a backlog"}
    second.add("drain", "drain", 0, {"steps_per_second": 30_000.0})

    report.write([first, second], tmp_path)

    text = page.read_text()
    assert "medians of 2 passes (smallest - largest): throughput." in " ".join(text.split())
    assert "`./run bench full`, 2026-11-27 06:00; one pass: drain." in text
    assert "30,000" in text
    assert text.count("### Goals") == 1


def test_the_page_has_its_marks():
    text = (ROOT / "docs" / "performance.md").read_text()

    assert text.index(report.BEGIN) < text.index(report.END)


def test_every_line_of_a_table_has_as_many_cells_as_its_head():
    results = a_run(ours_4=(1000,), chain=(100,))

    for title, rows in tables(results):
        assert len({len(row) for row in rows}) == 1, title
        assert as_markdown(rows).count("\n") == len(rows)


@pytest.mark.parametrize("name", PROFILES)
def test_every_row_of_a_profile_can_be_planned(name):
    profile = PROFILES[name]

    plan = chosen(ROWS, profile, ("dbos",))

    assert [row.name for row, _ in plan] == list(profile.rows)
    assert all(entries for _, entries in plan)
    assert {entry.peer for _, entries in plan for entry in entries} <= {None, "dbos"}


def test_rows_and_peers_are_named_once_and_for_all():
    assert set(ROWS) == set(ALL_ROWS)
    assert set(DISTRIBUTIONS) == set(ALL_PEERS)
    assert {name for names in requirements().values() for name in names} == set(ALL_PEERS)


def test_a_server_that_forgets_its_commits_is_refused(db, monkeypatch):
    """PGOPTIONS switches synchronous_commit off, in case the tests' own server does not already run that way."""
    database = settings.DATABASES["default"]
    monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=off")
    address = {"host": database["HOST"], "port": database["PORT"], "user": database["USER"], "password": database["PASSWORD"]}
    url = " ".join(f"{key}='{value}'" for key, value in {**address, "dbname": "postgres"}.items() if value)

    with pytest.raises(NotMeasurable, match="synchronous_commit off"):
        with open_lab(url, "memory://", "redis://127.0.0.1:1/0", Peers(), lambda text: None):
            pytest.fail("it was let in")


def test_a_role_starts_with_the_benchmarks_settings_which_have_no_shop():
    words = [sys.executable, "-W", "ignore", "-m", "django", "check"]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.settings", "PYTHONPATH": str(ROOT), "BENCH_AGENT_THREADS": "8"}

    checked = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)

    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr
