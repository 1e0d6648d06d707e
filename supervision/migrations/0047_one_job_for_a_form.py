"""Lets a form that is sent twice start one job."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("supervision", "0046_job_key_index")]

    operations = [
        migrations.RunSQL(
            'ALTER TABLE supervision_job ADD CONSTRAINT "a_form_starts_one_job" UNIQUE USING INDEX "a_form_starts_one_job"',
            'ALTER TABLE supervision_job DROP CONSTRAINT "a_form_starts_one_job"',
            state_operations=[
                migrations.AddConstraint("job", models.UniqueConstraint(fields=["key"], name="a_form_starts_one_job"))
            ],
        )
    ]
