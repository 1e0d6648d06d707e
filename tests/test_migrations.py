"""Migrations run beside the roles of the release before: none may hold them up. `tests/support/migration_lint.py` reads their SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, ValidateConstraint
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.models import F, Q
from django.db.models.functions import Random

from tests.support.migration_lint import findings

OURS = ("orders", "supervision")
INDEX = models.Index(fields=["workflow"], name="run_by_workflow")
CHECK = models.CheckConstraint(condition=Q(priority__gte=F("version")), name="a_check")
UNIQUE = models.UniqueConstraint(fields=["reply_to"], name="a_token_serves_one_run")
REFUSED = {
    "require-concurrent-index-creation": migrations.AddIndex("run", INDEX),
    "require-concurrent-index-deletion": migrations.RemoveIndex("run", "run_overdue"),
    "constraint-missing-not-valid": migrations.AddConstraint("run", CHECK),
    "adding-not-nullable-field": migrations.AlterField("run", "reply_to", models.TextField(verbose_name="reply token")),
    "adding-field-with-default": migrations.AddField("run", "dice", models.FloatField(db_default=Random())),
    "changing-column-type": migrations.AlterField("run", "status_seq", models.BigIntegerField(db_default=0)),
    "renaming-column": migrations.RenameField("run", "partition", "part"),
    "ban-drop-column": migrations.RemoveField("run", "partition"),
    "renaming-table": migrations.AlterModelTable("pause", "supervision_halt"),
    "ban-drop-table": migrations.DeleteModel("strayreply"),
    "default-of-django-only": migrations.AddField("run", "colour", models.TextField(default="red")),
    "adding-required-field": migrations.RunSQL("ALTER TABLE supervision_run ADD COLUMN colour text NOT NULL"),
    "adding-foreign-key-constraint": migrations.AddField("run", "lease", models.ForeignKey("LeaderLease", models.PROTECT, null=True)),
    "disallowed-unique-constraint": migrations.RunSQL("ALTER TABLE supervision_run ADD CONSTRAINT u UNIQUE (reply_to)"),
    "one-operation-if-not-atomic": (AddIndexConcurrently("run", INDEX), migrations.RunSQL("SELECT 1")),
    "cannot-be-undone": migrations.RunSQL("SELECT 1"),
    "two-tables-in-one-transaction": migrations.RunSQL(
        "ALTER TABLE supervision_run ADD a int; ALTER TABLE supervision_stepstate ADD a int"
    ),
    "python-is-not-read": migrations.RunPython(lambda apps, editor: None, migrations.RunPython.noop),
    "require-lock-timeout": (migrations.AddField("run", "colour", models.TextField(null=True)),),
}
ALLOWED = {
    "a nullable column": migrations.AddField("run", "colour", models.TextField(null=True)),
    "a constant default": migrations.AddField("run", "colour", models.TextField(db_default="red")),
    "a new table with its index": migrations.CreateModel(
        "Colour", [("id", models.BigAutoField(primary_key=True)), ("name", models.TextField(db_index=True))]
    ),
    "an index, concurrently": (AddIndexConcurrently("run", INDEX),),
    "a constraint for new rows": AddConstraintNotValid("run", CHECK),
    "the same for the old rows, in the next migration": ValidateConstraint("run", "a_check"),
}


@pytest.fixture
def loader(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[MigrationLoader]:
    """Every migration. No transaction is open, as when `migrate` runs, and nothing is written."""
    with django_db_blocker.unblock():
        yield MigrationLoader(connection)


def a_migration(operations: object, **fields: object) -> migrations.Migration:
    """One operation in a transaction, or some (in a tuple) outside of one."""
    alone = not isinstance(operations, tuple)
    fields = {"operations": [operations] if alone else list(operations), "atomic": alone, **fields}
    return type("Migration", (migrations.Migration,), fields)("9999_next", "supervision")


def test_our_migrations_hold_nothing_up(loader: MigrationLoader):
    ours = [migration for (app, _), migration in loader.graph.nodes.items() if app in OURS]

    assert {app for app in OURS if any(one.app_label == app for one in ours)} == set(OURS)
    assert {str(one): findings(one, loader) for one in ours if findings(one, loader)} == {}


@pytest.mark.parametrize("rule", REFUSED)
def test_a_migration_that_holds_a_running_shop_up_is_refused(loader: MigrationLoader, rule: str):
    bad = a_migration(REFUSED[rule])

    assert rule in findings(bad, loader)


@pytest.mark.parametrize("what", ALLOWED)
def test_an_online_migration_is_accepted(loader: MigrationLoader, what: str):
    if isinstance(ALLOWED[what], ValidateConstraint):
        after_the_first = a_migration(AddConstraintNotValid("run", CHECK)).mutate_state(loader.project_state())
        loader.project_state = after_the_first.clone

    assert findings(a_migration(ALLOWED[what]), loader) == {}


def test_constraint_and_validation_in_one_migration_are_refused(loader: MigrationLoader):
    both = type(
        "Migration", (migrations.Migration,), {"operations": [ALLOWED["a constraint for new rows"], ValidateConstraint("run", "a_check")]}
    )

    assert "constraint-missing-not-valid" in findings(both("9999_next", "supervision"), loader)


def test_a_migration_may_say_why_it_is_harmless(loader: MigrationLoader):
    drop = REFUSED["ban-drop-column"]

    assert findings(a_migration(drop, accepted={"ban-drop-column": "no release since 0.1.0 reads it"}), loader) == {}
    assert "ban-drop-column" in findings(a_migration(drop, accepted={"ban-drop-column": ""}), loader)
