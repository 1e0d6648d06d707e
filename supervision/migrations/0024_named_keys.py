"""Names three keys for the pages that show them; no statement runs."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0023_rights'),
    ]

    operations = [
        migrations.AlterField(
            model_name='journalentry',
            name='file',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='supervision.journalfile', verbose_name='journal file'),
        ),
        migrations.AlterField(
            model_name='notification',
            name='run',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='supervision.run', verbose_name='run'),
        ),
        migrations.AlterField(
            model_name='strayreply',
            name='run',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='stray_replies', to='supervision.run', verbose_name='run'),
        ),
    ]
