"""The condition by which statements skip runs whose workflow version this process's code does not know."""

from __future__ import annotations


def known_only(run: str) -> str:
    """A condition: the code whose labels are in `known` knows the version of this run.

    Its first part is uncorrelated, as for pauses: while the code knows every registered version, no run's version is read.
    """
    return f"""(NOT EXISTS (SELECT FROM supervision_workflowversion w WHERE w.name || ' ' || w.version <> ALL (%(known)s::text[]))
            OR (SELECT k.workflow || ' ' || k.version FROM supervision_run k WHERE k.id = {run}) = ANY (%(known)s::text[]))"""  # noqa: S608
