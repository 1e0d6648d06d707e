"""Adds the channels that tell operators of incidents, and the messages to them."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """Two new tables."""

    dependencies = [
        ('supervision', '0017_approvals'),
    ]

    operations = [
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField(unique=True, verbose_name='name')),
                ('kind', models.TextField(choices=[('mail', 'Mail'), ('webhook', 'Webhook'), ('slack', 'Slack'), ('pagerduty', 'PagerDuty')], verbose_name='kind')),
                ('address', models.TextField(blank=True, db_default='', default='', verbose_name='address')),
                ('secret', models.TextField(blank=True, db_default='', default='', verbose_name='secret')),
                ('least', models.TextField(choices=[('warning', 'warning and critical'), ('critical', 'critical only')], db_default='warning', default='warning', verbose_name='severity')),
                ('kinds', models.JSONField(blank=True, db_default=[], default=list, verbose_name='kinds of incidents')),
                ('active', models.BooleanField(db_default=True, default=True, verbose_name='active')),
                ('failures', models.IntegerField(db_default=0, default=0, verbose_name='failures in a row')),
                ('failing_since', models.DateTimeField(null=True, verbose_name='failing since')),
                ('retry_at', models.DateTimeField(null=True, verbose_name='left in peace until')),
                ('last_error', models.TextField(db_default='', default='', verbose_name='last error')),
                ('sent_at', models.DateTimeField(null=True, verbose_name='last sent at')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'channel',
                'verbose_name_plural': 'channels',
                'default_permissions': ('view', 'change'),
            },
        ),
        migrations.CreateModel(
            name='Telling',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('incident_id', models.BigIntegerField(null=True, verbose_name='incident')),
                ('event', models.TextField(verbose_name='event')),
                ('severity', models.TextField(db_default='', default='', verbose_name='severity')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
                ('not_before', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='not before')),
                ('attempt', models.IntegerField(db_default=0, default=0, verbose_name='attempt')),
                ('status_code', models.IntegerField(null=True, verbose_name='answer')),
                ('last_error', models.TextField(db_default='', default='', verbose_name='last error')),
                ('log', models.JSONField(db_default=[], default=list, verbose_name='log')),
                ('delivered_at', models.DateTimeField(null=True, verbose_name='delivered at')),
                ('given_up_at', models.DateTimeField(null=True, verbose_name='given up at')),
                ('channel', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tellings', to='supervision.channel', verbose_name='channel')),
            ],
            options={
                'verbose_name': 'alert sent out',
                'verbose_name_plural': 'alerts sent out',
                'default_permissions': ('view',),
                'indexes': [models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True)), fields=['channel', 'id'], name='telling_due'), models.Index(fields=['incident_id', 'channel'], name='telling_of_incident')],
            },
        ),
    ]
