"""The demo's launcher where something is in its way: one line, and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from sasproject.children import Child, Children
from sasproject.stack import DemoError, Options, Stack
from supervision.embedded.server import EmbeddedPostgres
from tests.support.forked import state_of
from tests.support.shop import until

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import json, os, sys
from pathlib import Path
from sasproject import children

children.KERNEL_ENDS_THEM = False
them = children.Children(Path(sys.argv[1]), lambda who, text: None, lambda: None)
for name, ready_when, *command in json.loads(sys.argv[2]):
    them.start(children.Child(name, command, dict(os.environ), ready_when=ready_when.encode()))
while not all(child.ready for child in them.by_name.values()):
    them.pump()
print(*(child.pid for child in them.by_name.values()), flush=True)
while True:
    them.pump()
"""
APPLICATION = "async def application(scope, receive, send): pass"


@pytest.fixture
def stack(tmp_path):
    return Stack(Options(tmp_path / "state", ready_file=tmp_path / "ready.json"), lambda text: None)


def test_a_port_that_there_is_not_is_refused(stack, monkeypatch):
    with pytest.raises(CommandError, match=r"--port: invalid port \(up to 65535\) value: '70000'"):
        call_command("demo", "--port", "70000")
    monkeypatch.setenv("PORT", "70000")
    with pytest.raises(DemoError, match=r"PORT=70000: ports go up to 65535\."):
        stack.choose_ports()


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(CommandError, match="Not a directory"):
        call_command("demo", "--state-dir", str(tmp_path / "file" / "state"))


def test_a_database_that_does_not_start_again_ends_the_demo_in_one_line(stack):
    other, stack.postgres = EmbeddedPostgres(stack.options.state_dir), EmbeddedPostgres(stack.options.state_dir)
    other._take_lock()
    stack.postgres.process = subprocess.Popen(["true"])
    stack.postgres.process.wait(10)

    with pytest.raises(DemoError, match="is in use by process"):
        stack.tick()
    other.stop()


def test_an_error_while_it_stops_leaves_no_process_and_no_database(stack):
    stack.env = {}
    child = stack.start_child("web", [sys.executable, "-c", "import time; time.sleep(60)"])
    stack.postgres = EmbeddedPostgres(stack.options.state_dir)
    stack.postgres._take_lock()
    stack.options.ready_file.mkdir()  # so that it cannot be deleted as a file

    with pytest.raises(OSError, match=r"ready\.json"):
        stack.stop()

    child.process.wait(10)
    assert stack.postgres._lock is None, "the database was not stopped"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_ends_no_role(tmp_path):
    said = []
    children = Children(tmp_path / "log", lambda who, text: said.append((who, text)), lambda: None)
    child = Child("web", ["/bin/sh", "-c", "echo one; echo ready; sleep 60"], {}, ready_when=b"ready", keep=False)
    children.start(child)
    with Path("/dev/full").open("ab", buffering=0) as full:
        usual, children._files["web"] = children._files["web"], full
        deadline = time.monotonic() + 20
        while not child.ready and time.monotonic() < deadline:
            children.pump()
        children._files["web"] = usual
        children.stop(["web"], 10)

    assert (child.ready, child.last_lines) == (True, ["one", "ready"])
    assert said == [("web", "its log cannot be written: No space left on device")]


def test_children_of_a_killed_launcher_end_also_where_the_kernel_does_not_end_them(tmp_path):
    (tmp_path / "nothing.py").write_text(APPLICATION)
    simulators = [sys.executable, "manage.py", "simulators", "--port", "0", "--smtp-port", "0", "--ledger", str(tmp_path / "ledger")]
    gunicorn = f"exec {sys.executable} -m gunicorn nothing:application -k asgi --bind 127.0.0.1:0 --no-control-socket --asgi-lifespan off"
    roles = [["simulators", "Simulators ready", *simulators], ["web", "ASGI server listening", "/bin/sh", "-c", gunicorn]]
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "log"), json.dumps(roles)]
    environ = {**os.environ, "DEBUG": "1", "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        alive = [bool(state_of(pid)) for pid in pids]
        launcher.kill()
    try:
        until(lambda: not any(map(state_of, pids)), within=40, what="the end of the children")
    finally:
        for pid in filter(state_of, pids):
            os.kill(pid, signal.SIGKILL)

    assert alive == [True, True]
