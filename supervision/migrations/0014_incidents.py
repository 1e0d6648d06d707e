"""Incidents, alerts that close, and notifications that are given up."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


# What is open after this: the alert of a run that stands in Error at that step, seen or not, and what no operator has seen of
# steps that were given up. Of several, the newest.
CLOSE = """
UPDATE supervision_alert a SET closed_at = coalesce(a.acknowledged_at, now())
 WHERE NOT CASE a.kind
       WHEN 'error' THEN EXISTS (
            SELECT FROM supervision_run r
              JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = r.direction AND s.process_state = 'Error'
             WHERE r.id = a.run_id AND r.process_state = 'Error' AND s.direction = a.direction AND s.position = a.position)
       WHEN 'skipped' THEN a.acknowledged_at IS NULL
       ELSE false END
    OR EXISTS (SELECT FROM supervision_alert b WHERE b.run_id = a.run_id AND b.position = a.position
                  AND b.direction = a.direction AND b.kind = a.kind AND b.id > a.id)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0013_blame'),
    ]

    operations = [
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.TextField(verbose_name='kind')),
                ('cause', models.TextField(verbose_name='cause')),
                ('title', models.TextField(db_default='', default='', verbose_name='title')),
                ('resource', models.TextField(db_default='', default='', verbose_name='resource')),
                ('step', models.TextField(db_default='', default='', verbose_name='step')),
                ('code', models.TextField(db_default='', default='', verbose_name='code')),
                ('severity', models.TextField(choices=[('info', 'info'), ('warning', 'warning'), ('critical', 'critical')], db_default='warning', default='warning', verbose_name='severity')),
                ('orders', models.IntegerField(db_default=0, default=0, verbose_name='orders')),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='opened at')),
                ('reopened_at', models.DateTimeField(null=True, verbose_name='returned at')),
                ('closed_at', models.DateTimeField(null=True, verbose_name='closed at')),
                ('acknowledged_at', models.DateTimeField(null=True, verbose_name='acknowledged at')),
                ('acknowledged_by', models.TextField(db_default='', default='', verbose_name='acknowledged by')),
                ('acknowledge_reason', models.TextField(db_default='', default='', verbose_name='reason of the acknowledgement')),
                ('notified_at', models.DateTimeField(null=True, verbose_name='notified at')),
                ('told_severity', models.TextField(db_default='', default='', verbose_name='severity told')),
                ('told_closed_at', models.DateTimeField(null=True, verbose_name='told of its end at')),
            ],
            options={
                'verbose_name': 'incident',
                'verbose_name_plural': 'incidents',
                'default_permissions': ('view',),
            },
        ),
        migrations.RemoveConstraint(
            model_name='alert',
            name='one_alert_per_generation_and_kind',
        ),
        migrations.RemoveIndex(
            model_name='alert',
            name='alert_open',
        ),
        migrations.RemoveIndex(
            model_name='notification',
            name='notification_due',
        ),
        migrations.AddField(
            model_name='alert',
            name='cause',
            field=models.TextField(db_default='', default='', verbose_name='cause'),
        ),
        migrations.AddField(
            model_name='alert',
            name='closed_at',
            field=models.DateTimeField(null=True, verbose_name='closed at'),
        ),
        migrations.AddField(
            model_name='alert',
            name='code',
            field=models.TextField(db_default='', default='', verbose_name='code'),
        ),
        migrations.AddField(
            model_name='alert',
            name='severity',
            field=models.TextField(db_default='warning', default='warning', verbose_name='severity'),
        ),
        migrations.AddField(
            model_name='notification',
            name='given_up_at',
            field=models.DateTimeField(null=True, verbose_name='given up at'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True), models.Q(('kind', 'status'), _negated=True)), fields=['not_before'], name='notification_due'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('given_up_at__isnull', False)), fields=['given_up_at'], name='notification_given_up'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('closed_at__isnull', False)), fields=['cause', '-closed_at'], name='incident_closed'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['-opened_at'], name='incident_opened'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('closed_at__isnull', True)), fields=('cause',), name='a_cause_has_one_open_incident'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(('severity__in', ['info', 'warning', 'critical'])), name='an_incidents_severity_is_known_by_name'),
        ),
        migrations.AddField(
            model_name='alert',
            name='incident',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='alerts', to='supervision.incident', verbose_name='incident'),
        ),
        migrations.RunSQL(CLOSE, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['-raised_at'], name='alert_open'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['cause', 'run'], name='alert_by_cause'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.UniqueConstraint(condition=models.Q(('closed_at__isnull', True)), fields=('run', 'position', 'direction', 'kind'), name='a_step_has_one_open_alert_of_a_kind'),
        ),
    ]
