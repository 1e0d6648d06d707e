"""Ends a process whose plans differ from the registered ones: at its start, and later at a heartbeat."""

from __future__ import annotations

import logging
import os
import sys

from django.db import Error as DatabaseError
from django.db import connection

from supervision.errors import PlanChanged
from supervision.plans import registry

log = logging.getLogger(__name__)

EXIT_CODE = 1


def refuse_other_plans() -> None:
    """At the start of a process: end it, with one line and exit code 1, where its definition of a version differs.

    If the database is away, the process goes on. Each heartbeat, and the first run that is written, checks again.
    """
    try:
        connection.ensure_connection()
        registry.confirm()
    except PlanChanged as changed:
        sys.stderr.write(f"refused: {changed}\n")
        sys.exit(EXIT_CODE)
    except DatabaseError as error:
        log.warning("could not compare the workflows with the registered ones: %s", str(error).strip().splitlines()[:1])
    finally:
        connection.close()


def keep_confirming() -> dict[str, list[int]]:
    """The plans that a heartbeat reports. Ends the process where its plans differ from the registered ones."""
    try:
        registry.confirm(again=True)
    except PlanChanged as changed:
        log.critical("refused: %s", changed)
        os._exit(EXIT_CODE)
    return registry.told()
