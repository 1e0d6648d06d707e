"""A role that does not find the tables by its search_path: each command says so, and does not advise to make other tables."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.migrating import manage


@pytest.mark.parametrize("command", [("work", "all"), ("orders",)])
def test_a_command_that_finds_no_table_says_where_they_are(url: str, command: tuple[str, ...]):
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f'ALTER DATABASE "{urlsplit(url).path.strip("/")}" SET search_path = elsewhere')

    said = manage(url, *command)

    assert said.returncode == 1
    assert "cannot be used: the tables are in the schema public, where " in said.stderr.splitlines()[-1]
    assert "its search_path is elsewhere: ALTER ROLE ... SET search_path" in said.stderr.splitlines()[-1]
    assert "run manage.py migrate" not in said.stderr
