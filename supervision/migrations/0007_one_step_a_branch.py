"""Lets one step at a time run in each branch of a run, where it was one in each run."""

from __future__ import annotations

from django.db import migrations, models

_OLD, _NEW = "a_run_processes_one_step_at_a_time", "a_branch_processes_one_step_at_a_time"
_DROP = "DROP INDEX CONCURRENTLY IF EXISTS {name}"
_CREATE = "CREATE UNIQUE INDEX CONCURRENTLY {name} ON supervision_stepstate ({columns}) WHERE process_state = 'Processing'"


def _build(name: str, columns: str) -> list[str]:
    """Build the index, again if an earlier try has left it unfinished."""
    return [_DROP.format(name=name), _CREATE.format(name=name, columns=columns)]


class Migration(migrations.Migration):
    """The new index is built before the old one is dropped, and writers go on meanwhile."""

    atomic = False
    dependencies = [("supervision", "0006_branches")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(_build(_NEW, "run_id, branch"), _DROP.format(name=_NEW)),
                migrations.RunSQL(_DROP.format(name=_OLD), _build(_OLD, "run_id")),
            ],
            [
                migrations.RemoveConstraint("stepstate", _OLD),
                migrations.AddConstraint(
                    "stepstate",
                    models.UniqueConstraint(
                        condition=models.Q(("process_state", "Processing")), fields=("run", "branch"), name=_NEW
                    ),
                ),
            ],
        ),
    ]
