"""Status messages: written by the database itself, in the transaction that made them true.

A run without a listener (`notify` false) pays for the WHEN clause only. For the others each change of state raises
`status_seq` under the row's own lock, so the numbers have no gap and no repetition, and puts one notification into the
outbox: rolled back together, committed together.
"""

from django.db import migrations, models

STATUS = """
CREATE FUNCTION supervision_tell_status(run bigint, seq integer, state text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO supervision_notification (kind, run_id, payload)
    VALUES ('status', run, jsonb_build_object('seq', seq, 'status', state,
            'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
$$;
CREATE FUNCTION supervision_tell_of_a_new_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status_seq := 1;
    PERFORM supervision_tell_status(NEW.id, 1, 'received');
    IF NEW.process_state IN ('Processing', 'Processed', 'Error', 'Cancelled') THEN
        NEW.status_seq := 2;
        PERFORM supervision_tell_status(NEW.id, 2, lower(NEW.process_state));
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION supervision_tell_of_a_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE number integer;
BEGIN
    IF NEW.process_state IN ('Processing', 'Processed', 'Error', 'Cancelled') THEN
        UPDATE supervision_run SET status_seq = status_seq + 1 WHERE id = NEW.id RETURNING status_seq INTO number;
        PERFORM supervision_tell_status(NEW.id, number, lower(NEW.process_state));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_of_a_new_run BEFORE INSERT ON supervision_run FOR EACH ROW
    WHEN (NEW.notify) EXECUTE FUNCTION supervision_tell_of_a_new_run();
-- AFTER: a BEFORE trigger would lock every run's row first, also of those without a listener.
CREATE TRIGGER tell_of_a_change AFTER UPDATE OF process_state ON supervision_run FOR EACH ROW
    WHEN (NEW.notify AND OLD.process_state IS DISTINCT FROM NEW.process_state)
    EXECUTE FUNCTION supervision_tell_of_a_change();
"""

STATUS_BACK = """
DROP TRIGGER tell_of_a_change ON supervision_run;
DROP TRIGGER tell_of_a_new_run ON supervision_run;
DROP FUNCTION supervision_tell_of_a_change();
DROP FUNCTION supervision_tell_of_a_new_run();
DROP FUNCTION supervision_tell_status(bigint, integer, text);
"""

# The delivery workers hear of it at commit. Equal announcements of one transaction are one.
ANNOUNCE = """
CREATE FUNCTION supervision_announce_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('supervision_outbox', CASE WHEN kind = 'status' THEN 'status' ELSE 'other' END)
       FROM (SELECT DISTINCT kind FROM written) kinds;
    RETURN NULL;
END $$;
CREATE TRIGGER announce_outbox AFTER INSERT ON supervision_notification REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_announce_outbox();
"""

ANNOUNCE_BACK = """
DROP TRIGGER announce_outbox ON supervision_notification;
DROP FUNCTION supervision_announce_outbox();
"""

# Endpoints and deliveries are updated with every message; an order's own tables are not the only hot ones.
STORAGE = """
ALTER TABLE supervision_delivery SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE supervision_webhookendpoint SET (fillfactor = 50);
"""

STORAGE_BACK = """
ALTER TABLE supervision_delivery RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE supervision_webhookendpoint RESET (fillfactor);
"""


class Migration(migrations.Migration):
    """Triggers, and one index of the outbox for each of its two readers."""

    dependencies = [("supervision", "0005_competing_and_governed")]

    operations = [
        migrations.RemoveIndex(model_name="notification", name="notification_due"),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(
                name="notification_due",
                fields=["not_before"],
                condition=models.Q(("delivered_at__isnull", True), models.Q(("kind", "status"), _negated=True)),
            ),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(
                name="notification_to_fan_out",
                fields=["id"],
                condition=models.Q(("delivered_at__isnull", True), ("kind", "status")),
            ),
        ),
        migrations.RunSQL(STATUS, STATUS_BACK),
        migrations.RunSQL(ANNOUNCE, ANNOUNCE_BACK),
        migrations.RunSQL(STORAGE, STORAGE_BACK),
    ]
