"""API tokens have a name and a scope."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table beside the tokens' own, which is the library's. Tokens without a row keep all rights of their account."""

    dependencies = [
        ("knox", "0009_extend_authtoken_field"),
        ("orders", "0032_documents_deleted"),
    ]

    operations = [
        migrations.CreateModel(
            name="TokenGrant",
            fields=[
                (
                    "token",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="grant",
                        serialize=False,
                        to="knox.authtoken",
                        verbose_name="token",
                    ),
                ),
                ("name", models.CharField(max_length=60, verbose_name="name")),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("read", "read only"),
                            ("orders", "read, place orders and change own ones"),
                            ("operate", "all that the account may do"),
                        ],
                        max_length=10,
                        verbose_name="scope",
                    ),
                ),
            ],
            options={
                "verbose_name": "token's scope",
                "verbose_name_plural": "tokens' scopes",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("scope__in", ["read", "orders", "operate"])), name="token_scope_known")
                ],
            },
        ),
    ]
