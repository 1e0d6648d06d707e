"""Copies the customer's name into the orders that were placed before it was a column. 2,000 orders are written in each commit."""

from django.db import migrations

FILL = """
WITH page AS MATERIALIZED (SELECT id, run_id, customer FROM orders_order WHERE id > %(after)s ORDER BY id LIMIT 2000),
filled AS (
    UPDATE orders_order o SET customer = r.payload #>> '{shipping_address,name}' FROM page JOIN supervision_run r ON r.id = page.run_id
     WHERE o.id = page.id AND page.customer = '' AND r.payload #>> '{shipping_address,name}' <> ''
)
SELECT max(id) FROM page
"""


def fill(apps, schema_editor):
    """Go through all orders by their ids. May be repeated."""
    after = 0
    with schema_editor.connection.cursor() as cursor:
        while after is not None:
            cursor.execute(FILL, {"after": after})
            after = cursor.fetchone()[0]


class Migration(migrations.Migration):
    """Writes no row twice, and holds no lock for longer than a page."""

    accepted = {"python-is-not-read": "writes 2,000 orders in each transaction, and may be repeated"}
    atomic = False
    dependencies = [("orders", "0011_parcel_tracked"), ("supervision", "0010_run_cancelled")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
