"""What tells an order's own failure from an outage, and which orders try a service out."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns with defaults: code of the version before can run beside it."""

    dependencies = [
        ('supervision', "0012_hooks"),
    ]

    operations = [
        migrations.AddField(
            model_name='resource',
            name='last_code',
            field=models.TextField(blank=True, db_default='', default='', verbose_name='code of the last error'),
        ),
        migrations.AddField(
            model_name='resource',
            name='probing',
            field=models.JSONField(blank=True, db_default=[], default=list, verbose_name='orders that try it out'),
        ),
        migrations.AddField(
            model_name='resource',
            name='successes',
            field=models.JSONField(blank=True, db_default=[], default=list, verbose_name='last successes'),
        ),
        migrations.AddField(
            model_name='resource',
            name='suspects',
            field=models.JSONField(blank=True, db_default=[], default=list, verbose_name='orders that failed since the last success'),
        ),
        migrations.AddField(
            model_name='stepstate',
            name='blamed_count',
            field=models.SmallIntegerField(null=True, verbose_name='failures held against it'),
        ),
        migrations.AddField(
            model_name='stepstate',
            name='failing_since',
            field=models.DateTimeField(null=True, verbose_name='failing since'),
        ),
    ]
