"""Adds what the carrier tells of parcels, and the task that looks at them every minute. New tables and a row alone."""

import django.db.models.functions.datetime
from django.db import migrations, models

TASK = "look at parcels"


def create_periodic_task(apps, schema_editor):
    """Create the task, keeping what is there."""
    every, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=60, period="seconds")
    defaults = {"task": "orders.look_at_parcels", "queue": "supervisor", "interval": every}
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(name=TASK, defaults=defaults)


def remove_periodic_task(apps, schema_editor):
    """Remove the task. Its schedule may serve others."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=TASK).delete()


class Migration(migrations.Migration):
    accepted = {"python-is-not-read": "writes one row of the schedule"}
    dependencies = [
        ('orders', '0003_payment_events'),
        ('django_celery_beat', '0019_alter_periodictasks_options'),
    ]

    operations = [
        migrations.CreateModel(
            name='ParcelCursor',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('done_to', models.BigIntegerField(verbose_name='done to')),
                ('seen_to', models.BigIntegerField(verbose_name='seen to')),
                ('seen_before', models.BigIntegerField(verbose_name='seen before')),
            ],
            options={
                'verbose_name': 'reader of orders with parcels',
                'verbose_name_plural': 'readers of orders with parcels',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Parcel',
            fields=[
                ('key', models.TextField(primary_key=True, serialize=False, verbose_name='idempotency key')),
                ('order_key', models.TextField(db_default='', verbose_name='order')),
                ('shipment', models.TextField(db_default='', verbose_name='shipment')),
                ('tracking_number', models.TextField(db_default='', verbose_name='tracking number')),
                ('state', models.TextField(db_default='booked', verbose_name='state')),
                ('changed_at', models.DateTimeField(null=True, verbose_name='changed at')),
                ('booked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='booked at')),
                ('look_at', models.DateTimeField(null=True, verbose_name='look at')),
                ('looks', models.SmallIntegerField(db_default=0, verbose_name='looks')),
                ('trouble', models.TextField(null=True, verbose_name='trouble')),
                ('trouble_at', models.DateTimeField(null=True, verbose_name='trouble since')),
            ],
            options={
                'verbose_name': 'parcel',
                'verbose_name_plural': 'parcels',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['order_key'], name='parcel_of_order'), models.Index(condition=models.Q(('look_at__isnull', False)), fields=['look_at'], name='parcel_to_look_at'), models.Index(condition=models.Q(('trouble__isnull', False)), fields=['trouble_at'], name='parcel_in_trouble')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ('booked', 'deleted', 'picked_up', 'delivered', 'returned'))), name='a_parcel_is_in_a_known_state'), models.CheckConstraint(condition=models.Q(('trouble__isnull', True), ('trouble__in', ('returned', 'not_stopped', 'silent', 'unknown_key')), _connector='OR'), name='a_parcels_trouble_is_known')],
            },
        ),
        migrations.CreateModel(
            name='ParcelEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.TextField(verbose_name='event')),
                ('key', models.TextField(verbose_name='idempotency key')),
                ('state', models.TextField(verbose_name='state')),
                ('at', models.DateTimeField(verbose_name='at')),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='received at')),
                ('outcome', models.TextField(db_default='', verbose_name='outcome')),
            ],
            options={
                'verbose_name': 'parcel event',
                'verbose_name_plural': 'parcel events',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['received_at'], name='parcel_event_received')],
                'constraints': [models.UniqueConstraint(fields=('event_id', 'key', 'state', 'at'), name='a_parcel_event_is_stored_once')],
            },
        ),
        migrations.CreateModel(
            name='ParcelWatch',
            fields=[
                ('order_key', models.TextField(primary_key=True, serialize=False, verbose_name='order')),
                ('run_id', models.BigIntegerField(verbose_name='run')),
                ('look_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='look at')),
                ('looks', models.SmallIntegerField(db_default=0, verbose_name='looks')),
            ],
            options={
                'verbose_name': 'watch for parcels',
                'verbose_name_plural': 'watches for parcels',
                'default_permissions': (),
                'indexes': [models.Index(fields=['look_at'], name='parcel_watch_due')],
            },
        ),
        migrations.RunPython(create_periodic_task, remove_periodic_task),
    ]
