"""Django gives every indexed text column a second index, for LIKE. No query searches public ids, numbers or reservations
by prefix (the console does so for e-mail addresses), and every order would write these indexes."""

from __future__ import annotations

from django.db import migrations

DROP = """
DO $$
DECLARE spare name;
BEGIN
    FOR spare IN
        SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE i.indrelid IN ('orders_order'::regclass, 'orders_stockreservation'::regclass)
           AND c.relname LIKE '%\\_like' AND c.relname NOT LIKE 'orders\\_order\\_email\\_%'
    LOOP
        EXECUTE format('DROP INDEX %I', spare);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    """Drops indexes that no query uses."""

    dependencies = [("orders", "0002_groups")]

    operations = [migrations.RunSQL(DROP, migrations.RunSQL.noop)]
