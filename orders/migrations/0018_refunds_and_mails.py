"""Adds what operators do for the customer of a finished order: refunds, and mails that are sent again."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0017_product_words'),
    ]

    operations = [
        migrations.CreateModel(
            name='MailAgain',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.TextField(verbose_name='public id')),
                ('order_key', models.TextField(db_index=True, verbose_name='order')),
                ('email', models.TextField(verbose_name='e-mail')),
                ('reason', models.TextField(verbose_name='reason')),
                ('asked_by', models.TextField(verbose_name='asked by')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'mail sent again',
                'verbose_name_plural': 'mails sent again',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('public_id',), name='a_mail_sent_again_has_one_run')],
            },
        ),
        migrations.CreateModel(
            name='Refund',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.TextField(verbose_name='public id')),
                ('order_key', models.TextField(db_index=True, verbose_name='order')),
                ('number', models.TextField(verbose_name='number')),
                ('amount', models.DecimalField(decimal_places=2, max_digits=12, verbose_name='amount')),
                ('currency', models.CharField(max_length=3, verbose_name='currency')),
                ('reason', models.TextField(verbose_name='reason')),
                ('asked_by', models.TextField(verbose_name='asked by')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'refund',
                'verbose_name_plural': 'refunds',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('public_id',), name='a_refund_has_one_run'), models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='a_refund_gives_something_back')],
            },
        ),
    ]
