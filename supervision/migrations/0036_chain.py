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
                ('number', models.BigIntegerField(primary_key=True, serialize=False, verbose_name='number')),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='made at')),
                ('links', models.IntegerField(verbose_name='links')),
                ('previous', models.BinaryField(null=True, verbose_name='previous head')),
                ('head', models.BinaryField(verbose_name='head')),
            ],
            options={
                'verbose_name': "batch of the history's chain",
                'verbose_name_plural': "batches of the history's chain",
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='HistoryLink',
            fields=[
                ('pk', models.CompositePrimaryKey('kind', 'subject', 'through', blank=True, editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField(verbose_name='kind')),
                ('subject', models.BigIntegerField(verbose_name='id')),
                ('through', models.IntegerField(verbose_name='up to event')),
                ('newest_at', models.DateTimeField(verbose_name='time of the newest event')),
                ('batch', models.BigIntegerField(verbose_name='batch')),
                ('digest', models.BinaryField(verbose_name='digest')),
                ('marks', models.BinaryField(verbose_name='marks')),
            ],
            options={
                'verbose_name': "link of the history's chain",
                'verbose_name_plural': "links of the history's chain",
                'default_permissions': (),
                'indexes': [models.Index(fields=['batch'], name='history_link_of_batch')],
            },
        ),
    ]
