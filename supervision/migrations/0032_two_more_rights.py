"""Names the permissions to cancel without undo and to change what was ordered. Only `operate` contains them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [
        ('supervision', '0031_duties'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='run',
            options={'default_permissions': ('view',), 'permissions': [('operate', 'Can resubmit, skip, cancel and undo'), ('resubmit_run', 'Can resubmit'), ('skip_run', 'Can skip'), ('complete_run', 'Can record as done by hand'), ('cancel_run', 'Can cancel'), ('abandon_run', 'Can cancel without undo'), ('compensate_run', 'Can undo'), ('resume_run', 'Can go back to a step'), ('move_run', 'Can move to a newer version'), ('signal_run', 'Can send signals'), ('pause_run', 'Can pause and resume'), ('refund_run', 'Can give money back'), ('edit_run', 'Can change what was ordered'), ('settle_finding', 'Can settle findings of the reconciliation'), ('approve_verb', "Can approve another operator's verbs"), ('handle_incident', 'Can own, note and acknowledge incidents and alerts'), ('settle_dead_letter', 'Can requeue and discard dead letters')], 'verbose_name': 'run', 'verbose_name_plural': 'runs'},
        ),
    ]
