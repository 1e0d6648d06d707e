"""Adds the payment service's events, and the refunds and disputes that it told of. New tables alone."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0002_the_shop_s_workflow'),
    ]

    operations = [
        migrations.CreateModel(
            name='PaymentAdjustment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('external_id', models.TextField(unique=True, verbose_name='external id')),
                ('kind', models.TextField(verbose_name='kind')),
                ('intent', models.TextField(verbose_name='payment')),
                ('order_key', models.TextField(verbose_name='order')),
                ('amount', models.DecimalField(decimal_places=3, max_digits=18, verbose_name='amount')),
                ('currency', models.TextField(verbose_name='currency')),
                ('status', models.TextField(verbose_name='status')),
                ('gives_back', models.BooleanField(verbose_name='gives back')),
                ('rank', models.SmallIntegerField(verbose_name='rank')),
                ('reason', models.TextField(db_default='', verbose_name='reason')),
                ('heard_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='heard at')),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='changed at')),
            ],
            options={
                'verbose_name': 'refund or dispute',
                'verbose_name_plural': 'refunds and disputes',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['order_key'], name='payment_adjustment_of_order')],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['refund', 'dispute'])), name='an_adjustment_is_of_a_known_kind')],
            },
        ),
        migrations.CreateModel(
            name='PaymentEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.TextField(unique=True, verbose_name='event')),
                ('kind', models.TextField(verbose_name='kind')),
                ('intent', models.TextField(verbose_name='payment')),
                ('order_key', models.TextField(db_default='', verbose_name='order')),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='received at')),
                ('applied_at', models.DateTimeField(null=True, verbose_name='applied at')),
                ('outcome', models.TextField(db_default='', verbose_name='outcome')),
            ],
            options={
                'verbose_name': 'payment event',
                'verbose_name_plural': 'payment events',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['received_at'], name='payment_event_received')],
            },
        ),
    ]
