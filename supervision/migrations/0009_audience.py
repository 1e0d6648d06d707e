"""Events are announced while there is a listener."""

from __future__ import annotations

from django.db import migrations, models



def announce_if(condition: str) -> str:
    """The trigger's function. Transactions that announce something commit one after the other, behind one lock.

    A payload holds 8,000 bytes: a larger batch is announced without names, and every listener looks.
    """
    return f"""
CREATE OR REPLACE FUNCTION supervision_announce_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF {condition} THEN
        PERFORM pg_notify('supervision_events',
                          CASE WHEN count(*) > 300 THEN '*' ELSE coalesce(string_agg(DISTINCT run_id::text, ','), '') END)
           FROM written HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    """One row, and a trigger that reads it."""

    dependencies = [("supervision", "0008_archive")]

    operations = [
        migrations.CreateModel(
            name="Audience",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField(verbose_name="until")),
            ],
            options={"verbose_name": "audience", "verbose_name_plural": "audiences", "default_permissions": ()},
        ),
        migrations.RunSQL(announce_if("EXISTS (SELECT FROM supervision_audience WHERE until > now())"), announce_if("true")),
    ]
