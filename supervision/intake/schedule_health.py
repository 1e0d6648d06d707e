"""Whether schedules work: what keeps one from starting its runs, and which times got no run. Each tells people as an incident.

A schedule has one row, so its health grows by nothing: the first and last moment of a failure, its words, and the last time that
was skipped. The first run that the schedule starts clears them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.utils.translation import gettext as _

from supervision.incidents.incident_sql import SEEN
from supervision.incidents.lifecycle import Cause, detector
from supervision.postgres import db, json_safe

KIND = "schedule"
MOST_CHARACTERS = 400  # of an error's text

# Written when a failure begins or changes, and else once a minute. Only while the row is as this supervisor read it: another
# one may have started the runs since.
_FAILED = """
UPDATE supervision_scheduleprogress
   SET failing_since = coalesce(failing_since, now()), failed_at = now(), last_error = %(why)s
 WHERE name = %(name)s AND done_until = %(seen)s::timestamptz
   AND (failing_since IS NULL OR last_error <> %(why)s OR failed_at < now() - interval '1 minute')
RETURNING failing_since = now()
"""
# A failure is standing while some supervisor has seen it in the last ten minutes: a schedule may have left the code. A time
# that was skipped is reported until a run has started, for seven days, or until an operator acknowledges the incident.
_STANDING = f"""
SELECT p.name, p.last_error, p.failing_since, p.missed, p.done_until
  FROM supervision_scheduleprogress p
 WHERE p.failed_at > now() - interval '10 minutes'
    OR (p.missed IS NOT NULL AND p.done_until > now() - interval '7 days'
        AND p.done_until > {SEEN.format(cause="'schedule:' || p.name")})
 ORDER BY p.name
"""  # noqa: S608 - our own text


class Unstarted(Exception):
    """A schedule could not start its runs; the words are for people."""


def failed(name: str, seen: datetime, error: Exception) -> bool:
    """Note that a schedule could not start its runs. Returns whether this is news: it worked before. seen: its `done_until`."""
    words = str(error) if isinstance(error, Unstarted) else f"{type(error).__name__}: {error}"
    rows = db.run(_FAILED, {"name": name, "seen": seen.isoformat(), "why": json_safe.text(words)[:MOST_CHARACTERS]})
    return bool(rows and rows[0][0])


@detector(KIND)
def ailing() -> Iterator[Cause]:
    """One cause for each schedule that cannot start its runs, or whose last time got none."""
    for name, error, failing_since, missed, noted in db.fetch(_STANDING):
        facts = {"name": name, "error": error, "time": "" if missed is None else f"{missed:%Y-%m-%d %H:%M} UTC"}
        if missed is None:
            title = _("The schedule %(name)s cannot start its runs: %(error)s") % facts
        elif failing_since is None:
            title = _("The schedule %(name)s started no run for %(time)s: no supervisor was there in time") % facts
        else:
            title = _("The schedule %(name)s started no run for %(time)s: %(error)s") % facts
        yield Cause(kind=KIND, key=f"{KIND}:{name}", title=title, since=failing_since or noted)
