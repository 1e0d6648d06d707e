"""Adds the tables of the chain over the history: batches, and links of runs and of the operators' log."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes two empty tables."""

    dependencies = [
        ('supervision', '0035_append_only'),
    ]

    operations = [
        migrations.CreateModel(
            name='HistoryBatch',
            fields=[
                ('number', models.BigIntegerField(primary_key=True, serialize=False)),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('links', models.IntegerField()),
                ('previous', models.BinaryField(null=True)),
                ('head', models.BinaryField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='HistoryLink',
            fields=[
                ('pk', models.CompositePrimaryKey('kind', 'subject', 'through', blank=True, editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('subject', models.BigIntegerField()),
                ('through', models.IntegerField()),
                ('newest_at', models.DateTimeField()),
                ('batch', models.BigIntegerField()),
                ('digest', models.BinaryField()),
                ('marks', models.BinaryField()),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['batch'], name='history_link_of_batch')],
            },
        ),
    ]
