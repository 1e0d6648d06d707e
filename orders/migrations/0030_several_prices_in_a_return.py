"""Lets a return have a product at several prices: once at each price, and not only once."""

from django.db import migrations, models


class Migration(migrations.Migration):

    accepted = {"ban-drop-constraint": "old code writes a product once a return, and reads no guarantee from it"}
    dependencies = [("orders", "0029_return_line_at_a_price")]

    operations = [
        migrations.RunSQL(
            'ALTER TABLE orders_returnline ADD CONSTRAINT "a_return_has_a_product_at_a_price_once"'
            ' UNIQUE USING INDEX "a_return_has_a_product_at_a_price_once"',
            'ALTER TABLE orders_returnline DROP CONSTRAINT "a_return_has_a_product_at_a_price_once"',
            state_operations=[
                migrations.AddConstraint(
                    "returnline",
                    models.UniqueConstraint(fields=["of", "sku", "unit_price"], name="a_return_has_a_product_at_a_price_once"),
                )
            ],
        ),
        migrations.RemoveConstraint("returnline", "a_return_has_a_product_once"),
    ]
