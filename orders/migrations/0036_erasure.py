"""The table of erasures, with the rights to erase and to export a person's data."""

import django.contrib.postgres.fields
import django.db.models.functions.datetime
from django.db import migrations, models


TASK = "erase persons"


def create_periodic_task(apps, schema_editor):
    """Create the task, keeping what is there."""
    every, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=60, period="seconds")
    defaults = {"task": "orders.erase_persons", "queue": "supervisor", "interval": every}
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(name=TASK, defaults=defaults)


def remove_periodic_task(apps, schema_editor):
    """Remove the task. Its schedule may serve others."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=TASK).delete()


class Migration(migrations.Migration):
    accepted = {"python-is-not-read": "writes one row of the schedule"}
    dependencies = [
        ('orders', '0033_token_grant'),
        ('django_celery_beat', '0019_alter_periodictasks_options'),
    ]

    operations = [
        migrations.CreateModel(
            name='Erasure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digests', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None, verbose_name='digests')),
                ('subject', models.JSONField(default=dict, verbose_name='subject')),
                ('reason', models.TextField(verbose_name='reason')),
                ('asked_by', models.TextField(verbose_name='asked by')),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='asked at')),
                ('state', models.TextField(choices=[('working', 'at work'), ('done', 'done')], db_default='working', default='working', verbose_name='state')),
                ('step', models.TextField(db_default='orders', default='orders', verbose_name='step')),
                ('place', models.JSONField(default=list, verbose_name='place')),
                ('counts', models.JSONField(default=dict, verbose_name='rows changed')),
                ('waits', models.IntegerField(null=True, verbose_name='orders that wait')),
                ('tried_at', models.DateTimeField(null=True, verbose_name='worked at')),
                ('done_at', models.DateTimeField(null=True, verbose_name='done at')),
            ],
            options={
                'verbose_name': 'erasure',
                'verbose_name_plural': 'erasures',
                'permissions': [('erase_person', "Can erase a person's data"), ('export_person', "Can export a person's data")],
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(condition=models.Q(('done_at__isnull', True)), fields=('digests',), name='a_person_is_erased_once_at_a_time'), models.CheckConstraint(condition=models.Q(models.Q(('done_at__isnull', True), ('state', 'working')), models.Q(('done_at__isnull', False), ('state', 'done'), ('subject', {})), _connector='OR'), name='an_erasure_that_is_done_names_no_one')],
            },
        ),
        migrations.RunPython(create_periodic_task, remove_periodic_task),
    ]
