"""Adds corrections of the reports on returns: how many a return has, what the run was told first, and each of them."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    accepted = {"two-tables-in-one-transaction": "returns are few; `migrate` gives up long before a deadlock is found"}
    dependencies = [("orders", "0030_several_prices_in_a_return")]

    operations = [
        migrations.AddField("return", "corrections", models.IntegerField(db_default=0, default=0, verbose_name="corrections")),
        migrations.AddField("returnline", "reported", models.IntegerField(null=True, verbose_name="reported")),
        migrations.CreateModel(
            name="ReturnCorrection",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("return_key", models.TextField(verbose_name="return")),
                ("number", models.IntegerField(verbose_name="number")),
                ("key", models.TextField(verbose_name="idempotency key")),
                ("digest", models.TextField(verbose_name="digest")),
                ("lines", models.JSONField(verbose_name="lines")),
                ("paid", models.BooleanField(verbose_name="paid")),
                ("too_much", models.DecimalField(decimal_places=2, max_digits=12, verbose_name="paid too much")),
                ("further", models.DecimalField(decimal_places=2, max_digits=12, verbose_name="paid further")),
                ("refund", models.TextField(blank=True, db_default="", default="", verbose_name="refund")),
                ("reason", models.TextField(verbose_name="reason")),
                ("asked_by", models.TextField(verbose_name="asked by")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="created at")),
            ],
            options={
                "verbose_name": "correction of a return",
                "verbose_name_plural": "corrections of returns",
                "default_permissions": (),
                "indexes": [models.Index(fields=["refund"], name="correction_of_refund")],
                "constraints": [
                    models.UniqueConstraint(fields=("return_key", "number"), name="corrections_of_a_return_are_counted"),
                    models.UniqueConstraint(fields=("return_key", "key"), name="a_key_corrects_a_return_once"),
                ],
            },
        ),
    ]
