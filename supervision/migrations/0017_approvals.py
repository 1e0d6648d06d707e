"""Adds the requests of verbs that another operator has to approve."""

from __future__ import annotations

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """One new table."""

    dependencies = [
        ('supervision', '0016_waits_counted_once'),
    ]

    operations = [
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('verb', models.TextField(verbose_name='verb')),
                ('subject', models.TextField(verbose_name='subject')),
                ('order_key', models.TextField(db_default='', default='', verbose_name='order')),
                ('run_id', models.BigIntegerField(null=True, verbose_name='run')),
                ('step', models.TextField(db_default='', default='', verbose_name='step')),
                ('arguments', models.JSONField(db_default={}, default=dict, verbose_name='arguments')),
                ('stake', models.JSONField(db_default=[], default=list, verbose_name='at stake')),
                ('plan_version', models.TextField(db_default='', default='', verbose_name='version of the plan')),
                ('identity', models.TextField(verbose_name='identity')),
                ('reason', models.TextField(verbose_name='reason')),
                ('asked_by', models.TextField(verbose_name='asked by')),
                ('asked_by_id', models.BigIntegerField(null=True, verbose_name='account that asked')),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='asked at')),
                ('expires_at', models.DateTimeField(verbose_name='expires at')),
                ('state', models.TextField(choices=[('pending', 'waits for another operator'), ('approved', 'approved'), ('refused', 'refused'), ('expired', 'not decided in time'), ('failed', 'not possible any more')], db_default='pending', default='pending', verbose_name='state')),
                ('decided_by', models.TextField(db_default='', default='', verbose_name='decided by')),
                ('decided_at', models.DateTimeField(null=True, verbose_name='decided at')),
                ('decision_reason', models.TextField(db_default='', default='', verbose_name='reason of the decision')),
                ('carried_out_at', models.DateTimeField(null=True, verbose_name='carried out at')),
                ('outcome', models.TextField(db_default='', default='', verbose_name='outcome')),
            ],
            options={
                'verbose_name': 'approval',
                'verbose_name_plural': 'approvals',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['order_key', '-id'], name='approval_of_order'), models.Index(condition=models.Q(('state', 'pending')), fields=['id'], name='approval_pending')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'pending')), fields=('identity',), name='the_same_is_asked_for_once'), models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'approved', 'refused', 'expired', 'failed'])), name='a_known_state_of_an_approval'), models.CheckConstraint(condition=models.Q(('carried_out_at__isnull', True), ('state', 'approved'), _connector='OR'), name='only_what_is_approved_is_carried_out')],
            },
        ),
    ]
