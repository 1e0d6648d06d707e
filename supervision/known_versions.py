"""How a statement leaves runs alone whose workflow's version this process's code does not know."""

from __future__ import annotations


def known_only(run: str) -> str:
    """A condition: the code whose labels are in `known` knows the version of this run.

    Uncorrelated like the pauses: no run is asked for its version while this code knows every version there is.
    """
    return f"""(NOT EXISTS (SELECT FROM supervision_workflowversion w WHERE w.name || ' ' || w.version <> ALL (%(known)s::text[]))
            OR (SELECT k.workflow || ' ' || k.version FROM supervision_run k WHERE k.id = {run}) = ANY (%(known)s::text[]))"""  # noqa: S608
