"""The embedded PostgreSQL, with real servers and real kills."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from supervision.embedded import binaries as pgbinaries
from supervision.embedded import leftovers
from supervision.embedded.binaries import EmbeddedPostgresError
from supervision.embedded.leftovers import end_leftovers
from supervision.embedded.server import EmbeddedPostgres, database_url, socket_dir
from tests.support.forked import state_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def initialised(tmp_path_factory):
    """The data of a stopped server. Making it takes most of the time of a first start."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("initialised"), fast=True) as one:
        pass
    shutil.rmtree(one.socket_dir, ignore_errors=True)
    return one.data_dir


@pytest.fixture
def new_server(tmp_path):
    """A server without data that is not started yet."""
    server = EmbeddedPostgres(tmp_path / "state")
    yield server
    server.stop()
    shutil.rmtree(server.socket_dir, ignore_errors=True)


@pytest.fixture
def server(new_server, initialised):
    """A server with data that is not started yet."""
    if pgbinaries.find_identity(pgbinaries.find_binaries()).uid is None:  # else the data belong to another user
        shutil.copytree(initialised, new_server.state_dir / "pg", symlinks=True)
    return new_server


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM kept").fetchone()[0]


def keep_a_row(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")


def test_it_starts_stops_and_starts_again_with_its_data(new_server):
    new_server.start()
    keep_a_row(new_server.url)
    new_server.stop()
    assert new_server.pid is None

    new_server.start()

    assert rows(new_server.url) == 1


def test_it_is_durable_unless_told_otherwise(server, tmp_path):
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)

    with EmbeddedPostgres(tmp_path / "fast", fast=True) as fast, psycopg.connect(fast.url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)


def test_only_the_owner_reaches_it(server):
    server.start()

    assert server.socket_dir.stat().st_mode & 0o777 == 0o700
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_every_process_finds_the_same_address(tmp_path):
    code = "import sys; from supervision.embedded.server import database_url; print(database_url(sys.argv[1]))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    seen = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )

    assert seen.stdout.strip() == database_url(tmp_path)
    assert "%2F" in database_url(tmp_path)
    assert len(str(socket_dir(tmp_path / ("deep/" * 40)))) < 60


def test_a_killed_server_comes_back_with_every_commit(server):
    server.start()
    keep_a_row(server.url)
    connected = psycopg.connect(server.url)  # its backend lives a moment longer than the postmaster
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()

    server.start()

    assert rows(server.url) == 1
    connected.close()


def test_a_recovery_that_takes_longer_than_a_start_may_is_not_interrupted(server, caplog):
    """A server that is ended in its recovery begins it again at the next start: it would never come back."""
    server.start()
    keep_a_row(server.url)
    server.stop()
    with (server.data_dir / "postgresql.auto.conf").open("a") as conf:
        conf.write("restore_command = 'sleep 4; exit 1'\n")  # asked for several files
    (server.data_dir / "recovery.signal").touch()

    server.start(timeout=6)

    assert rows(server.url) == 1
    [line] = [one.message for one in caplog.records if one.name == "supervision.embedded.server"]
    assert line.startswith("PostgreSQL still recovers")


def test_a_stale_pid_file_that_names_a_stranger_is_no_obstacle(server):
    server.start()
    keep_a_row(server.url)
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    pid_file = server.data_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]))

    server.start()

    assert rows(server.url) == 1


LAUNCHER = textwrap.dedent("""
    import sys
    from supervision.embedded.server import EmbeddedPostgres
    server = EmbeddedPostgres(sys.argv[1])
    server.start()
    print(server.pid, flush=True)
    sys.stdin.read()
""")


def killed_launcher(server, script=LAUNCHER):
    """The pid of a server with one row, whose launcher was killed."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, str(server.state_dir)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid = int(launcher.stdout.readline())
    keep_a_row(server.url)
    launcher.kill()
    launcher.wait()
    return pid


def test_a_killed_launcher_takes_its_server_along_and_the_next_one_starts(server, eventually):
    pid = killed_launcher(server)

    if sys.platform.startswith("linux"):
        eventually(lambda: not state_of(pid), what="the end of the orphaned server")
    server.start()
    assert rows(server.url) == 1


def test_a_server_that_outlived_its_launcher_is_ended_by_the_next(server, eventually):
    server.start()
    keep_a_row(server.url)
    orphan, process = server.pid, server.process
    server._lock.close()  # the kernel does the same when a launcher dies
    server._lock = None
    server.process = None

    successor = EmbeddedPostgres(server.state_dir)
    successor.start()
    try:
        process.wait(10)
        assert successor.pid != orphan
        assert rows(successor.url) == 1
    finally:
        successor.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the test of a killed launcher shows it")
def test_where_no_kernel_ends_an_orphan_the_next_start_does(server, monkeypatch, eventually):
    """macOS: nothing tells the server that its launcher was killed, and there is no /proc to find it by."""
    monkeypatch.setattr(leftovers, "sys", SimpleNamespace(platform="darwin"))
    script = LAUNCHER.replace("server = ", "embedded._die_with_parent = lambda: None\nserver = ")
    script = script.replace("from supervision", "import supervision.embedded.server as embedded\nfrom supervision", 1)
    orphan = killed_launcher(server, script)
    assert state_of(orphan)

    server.start()

    eventually(lambda: not state_of(orphan), what="the end of the orphaned server")
    assert rows(server.url) == 1


def test_two_launchers_do_not_share_a_directory(server):
    server.start()

    with pytest.raises(EmbeddedPostgresError, match=f"in use by process {os.getpid()}"):
        EmbeddedPostgres(server.state_dir).start()
    assert server.pid


def test_an_interrupted_first_start_is_repeated(new_server):
    unfinished = new_server.state_dir / "pg.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    (new_server.state_dir / "pg").mkdir()

    new_server.start()

    keep_a_row(new_server.url)
    assert not unfinished.exists()


def test_data_of_another_version_is_refused_with_a_way_out(server):
    server.start()
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("11\n")

    with pytest.raises(EmbeddedPostgresError, match=r"was made by PostgreSQL 11.*--state-dir"):
        server.start()


def test_a_directory_somebody_put_in_the_way_is_refused(new_server, tmp_path):
    new_server.socket_dir.symlink_to(tmp_path)
    try:
        with pytest.raises(EmbeddedPostgresError, match="belongs to another user"):
            new_server.start()
    finally:
        new_server.socket_dir.unlink()


def test_a_foreign_locale_and_foreign_pg_variables_do_not_matter(new_server, monkeypatch):
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "9999")
    new_server.start()

    keep_a_row(new_server.url)


def test_ending_leftovers_of_nothing_is_harmless(tmp_path):
    end_leftovers(tmp_path / "pg", tmp_path / "sockets")


def test_a_leftover_server_is_found_from_a_narrow_terminal(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "40")
    with subprocess.Popen([sys.executable, "-c", "input()", "postgres", "-D", str(tmp_path / "pg")], stdin=subprocess.PIPE) as server:
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n{tmp_path / 'pg'}\n")
        assert leftovers._postmaster_by_ps(tmp_path) == [server.pid]
        server.kill()


def test_chosen_binaries_are_obeyed_or_refused(monkeypatch, tmp_path):
    found = pgbinaries.find_binaries()
    monkeypatch.setenv("SAS_PG_BIN", str(found.directory))
    assert pgbinaries.find_binaries() == found

    monkeypatch.setenv("SAS_PG_BIN", str(tmp_path))
    with pytest.raises(EmbeddedPostgresError, match="SAS_PG_BIN"):
        pgbinaries.find_binaries()


@pytest.mark.skipif(os.geteuid() != 0, reason="root only: others run the server as themselves")
def test_root_runs_it_in_a_user_namespace_and_keeps_the_files(new_server):
    if pgbinaries.find_identity(pgbinaries.find_binaries()).prefix == ():
        pytest.skip("user namespaces are not allowed here")
    new_server.start()

    assert (new_server.data_dir / "PG_VERSION").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root only: others run the server as themselves")
def test_root_without_user_namespaces_runs_it_as_nobody(new_server, monkeypatch):
    binaries = pgbinaries.find_binaries().directory
    package = binaries.parents[1]
    copy = Path("/tmp") / f"sas-binaries-{os.getpid()}"  # a directory that all users may read
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, copy / part.name)
    monkeypatch.setenv("SAS_PG_BIN", str(copy / binaries.relative_to(package.parent)))
    monkeypatch.setattr(pgbinaries, "NAMESPACE", ("false",))
    try:
        new_server.start()
        keep_a_row(new_server.url)
        new_server.stop()
        new_server.start()
        assert rows(new_server.url) == 1
        assert new_server.data_dir.stat().st_uid != 0
    finally:
        new_server.stop()
        shutil.rmtree(new_server.data_dir, ignore_errors=True)
        shutil.rmtree(copy)
