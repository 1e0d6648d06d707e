"""Builds the index by which a form starts one job, without blocking writers."""

from django.db import migrations


class Migration(migrations.Migration):

    atomic = False
    dependencies = [("supervision", "0045_job_key")]

    operations = [
        migrations.RunSQL(
            'CREATE UNIQUE INDEX CONCURRENTLY "a_form_starts_one_job" ON supervision_job (key)',
            'DROP INDEX CONCURRENTLY IF EXISTS "a_form_starts_one_job"',
        )
    ]
