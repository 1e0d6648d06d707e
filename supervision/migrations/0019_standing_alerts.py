"""Open alerts are gone through by their number."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0018_reader'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['id'], name='alert_standing'),
        ),
    ]
