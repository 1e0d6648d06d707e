"""Names two kinds of alerts and one state as people read them; no statement runs."""

from __future__ import annotations

import supervision.states
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0026_step_in_error_newest'),
    ]

    operations = [
        migrations.AlterField(
            model_name='alert',
            name='kind',
            field=models.TextField(choices=[('error', 'Step in error'), ('exhausted', 'Attempts exhausted, waiting longer'), ('skipped', 'Step given up, order went on'), ('starvation', 'Not started in time'), ('lost-dispatch', 'Lost dispatch')], verbose_name='kind'),
        ),
        migrations.AlterField(
            model_name='archivedrun',
            name='process_state',
            field=models.TextField(choices=[(supervision.states.RunState['PENDING'], 'Pending'), (supervision.states.RunState['PROCESSING'], 'Processing'), (supervision.states.RunState['PROCESSED'], 'Processed'), (supervision.states.RunState['ERROR'], 'Error'), (supervision.states.RunState['COMPENSATING'], 'Undoing'), (supervision.states.RunState['CANCELLED'], 'Cancelled')], verbose_name='state'),
        ),
        migrations.AlterField(
            model_name='run',
            name='process_state',
            field=models.TextField(choices=[(supervision.states.RunState['PENDING'], 'Pending'), (supervision.states.RunState['PROCESSING'], 'Processing'), (supervision.states.RunState['PROCESSED'], 'Processed'), (supervision.states.RunState['ERROR'], 'Error'), (supervision.states.RunState['COMPENSATING'], 'Undoing'), (supervision.states.RunState['CANCELLED'], 'Cancelled')], db_default='Pending', verbose_name='state'),
        ),
    ]
