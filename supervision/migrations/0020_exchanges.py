"""Adds what attempts said to services, and the answers."""

import django.db.models.deletion
import django.db.models.functions.datetime
import supervision.states
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0019_run_notes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Exchange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('direction', models.TextField(choices=[(supervision.states.Direction['DO'], 'do'), (supervision.states.Direction['UNDO'], 'undo')], verbose_name='direction')),
                ('position', models.SmallIntegerField(verbose_name='position')),
                ('attempt', models.IntegerField(verbose_name='attempt')),
                ('service', models.TextField(verbose_name='service')),
                ('call', models.TextField(verbose_name='call')),
                ('asked', models.TextField(verbose_name='request')),
                ('answered', models.TextField(verbose_name='answer')),
                ('status', models.IntegerField(null=True, verbose_name='status')),
                ('seconds', models.FloatField(verbose_name='seconds')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True, verbose_name='at')),
                ('run', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='exchanges', to='supervision.run')),
            ],
            options={
                'verbose_name': 'exchange with a service',
                'verbose_name_plural': 'exchanges with services',
                'default_permissions': ('view',),
            },
        ),
    ]
