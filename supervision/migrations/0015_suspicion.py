"""Submissions are blamed for what they did to a lone reader; sessions are found without their orders."""

from __future__ import annotations

from django.db import migrations, models

# The client of a run is the client of its submission. Only runs in a session pay for it.
FILL = """
CREATE FUNCTION supervision_name_the_session_s_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.session_client := coalesce((SELECT client FROM supervision_submission WHERE public_id = NEW.key), '');
    RETURN NEW;
END $$;
CREATE TRIGGER name_the_session_s_client BEFORE INSERT ON supervision_run FOR EACH ROW
    WHEN (NEW.session_key IS NOT NULL) EXECUTE FUNCTION supervision_name_the_session_s_client();
UPDATE supervision_run r SET session_client = coalesce((SELECT client FROM supervision_submission s WHERE s.public_id = r.key), '')
 WHERE r.session_key IS NOT NULL AND r.finished_at IS NULL;
"""

FILL_BACK = """
DROP TRIGGER name_the_session_s_client ON supervision_run;
DROP FUNCTION supervision_name_the_session_s_client();
"""


class Migration(migrations.Migration):
    """Columns, two partial indexes, and one trigger for runs in sessions."""

    dependencies = [("supervision", "0014_incidents")]

    operations = [
        migrations.AddField("submission", "reader", models.TextField(null=True, verbose_name="reader")),
        migrations.AddField("submission", "suspected_at", models.DateTimeField(null=True, verbose_name="suspected at")),
        # Rows that are there, and those of older code, get the default: their session is unknown.
        migrations.AddField("submission", "session_key", models.TextField(db_default="", null=True, verbose_name="session")),
        migrations.AddIndex(
            "submission",
            models.Index(
                name="submission_session_waiting",
                fields=["client", "session_key", "id"],
                condition=models.Q(("consumed_at__isnull", True), ("session_key__isnull", False)),
            ),
        ),
        migrations.AddField("run", "session_client", models.TextField(null=True, verbose_name="client of the session")),
        migrations.RunSQL(FILL, FILL_BACK),
        migrations.RemoveIndex("run", "run_session"),
        migrations.AddIndex(
            "run",
            models.Index(
                name="run_session",
                fields=["session_key", "session_client", "id"],
                condition=models.Q(("finished_at__isnull", True), ("session_key__isnull", False)),
            ),
        ),
    ]
