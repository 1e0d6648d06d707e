"""When a dead letter's bytes were erased, and the digest that they had. Both columns are added without a rewrite of the table."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0040_totals'),
    ]

    operations = [
        migrations.AddField(
            model_name='deadletter',
            name='blanked_at',
            field=models.DateTimeField(null=True, verbose_name='blanked at'),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='digest',
            field=models.TextField(db_default='', default='', verbose_name='digest'),
        ),
    ]
