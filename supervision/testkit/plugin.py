"""The plugin for pytest: the fixture `sas`, and `--record-workflows`.

pytest loads it by its entry point wherever the distribution is installed, also in projects that do not use it. So it imports
neither Django nor the engine before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from supervision.testkit.kit import Kit

OWN_DATABASE = pytest.StashKey[str]()  # the name of the project's own database


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-workflows`."""
    parser.addoption("--record-workflows", action="store_true", help="let `sas.definitions` write new versions into its file")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Remember the name of the project's own database before a fixture replaces it by the test database, and let `direct` follow."""
    if any("sas_database" in getattr(item, "fixturenames", ()) for item in session.items):
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connection, connections

        try:
            if (direct := connections.settings.get("direct")) is not None:
                direct["TEST"]["MIRROR"] = direct["TEST"]["MIRROR"] or "default"
            session.config.stash[OWN_DATABASE] = str(connection.settings_dict["NAME"])
        except ImproperlyConfigured:
            text = "the fixture `sas` needs Django's settings: set DJANGO_SETTINGS_MODULE, in the environment or in pytest.ini"
            raise pytest.UsageError(text) from None


@pytest.fixture(scope="session")
def sas_database(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database, also where no test has pytest-django's mark. The fixture never touches the project's own database."""
    from django.db import connection
    from django.test.utils import setup_databases, teardown_databases

    mine = None
    with django_db_blocker.unblock():
        if connection.settings_dict["NAME"] == request.config.stash[OWN_DATABASE]:
            mine = setup_databases(verbosity=0, interactive=False, aliases=["default"])  # type: ignore[arg-type]  # the stubs ask for a mapping
    yield
    with django_db_blocker.unblock():
        # The engine's own threads keep their connections for the life of the process.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.close()
        if mine is not None:
            teardown_databases(mine, verbosity=0)


@pytest.fixture
def sas(sas_database: None, django_db_blocker: Any, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """The engine in the test's hands, on an empty store (`supervision.testkit.kit.Kit`). It commits, and deletes its rows after it.

    Rows of the application's own tables are deleted by pytest-django's `transactional_db`, if the test asks for that as well.
    """
    from supervision import testing
    from supervision.testkit.kit import Kit

    with django_db_blocker.unblock(), testing.quiet(), pytest.MonkeyPatch.context() as patch:
        testing.clean()
        try:
            kit = Kit(patch, record=bool(request.config.getoption("--record-workflows")))
            yield kit
            kit.assert_nothing_left()
        finally:
            patch.undo()
            testing.clean()
            testing.renew_session()
