"""The demo's launcher where something is in its way: one line, and nothing is left running."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from sasproject.children import Child, Children
from sasproject.stack import DemoError, Options, Stack
from supervision.embedded.server import EmbeddedPostgres


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
