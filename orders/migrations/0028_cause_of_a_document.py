"""Names what a credit note is issued for its cause: a return, a refund, or money that went back elsewhere. The column stays."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [("orders", "0027_payment_event_of_order")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("document", "an_order_has_one_invoice_and_a_return_one_credit_note"),
                migrations.RemoveConstraint("document", "a_document_is_an_invoice_or_of_a_return"),
                migrations.RemoveField("document", "return_key"),
                migrations.AddField(
                    "document",
                    "cause",
                    models.TextField(db_column="return_key", db_default="", default="", verbose_name="cause"),
                ),
                migrations.AddConstraint(
                    "document",
                    models.UniqueConstraint(
                        fields=["order_key", "kind", "cause"], name="an_order_has_one_invoice_and_a_return_one_credit_note"
                    ),
                ),
                migrations.AddConstraint(
                    "document",
                    models.CheckConstraint(
                        condition=Q(kind="invoice", cause="") | (Q(kind="credit_note") & ~Q(cause="")),
                        name="a_document_is_an_invoice_or_of_a_return",
                    ),
                ),
            ]
        ),
    ]
