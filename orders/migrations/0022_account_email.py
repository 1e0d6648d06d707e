"""Adds the index by which an account is found by its mail address, in upper or lower case. It is not unique: old accounts may share one."""

from django.conf import settings
from django.db import migrations


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("orders", "0021_accounts")]
    operations = [
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY account_email ON auth_user (upper(email::text))",
            "DROP INDEX CONCURRENTLY IF EXISTS account_email",
        )
    ]
