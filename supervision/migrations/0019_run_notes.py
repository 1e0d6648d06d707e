"""Adds notes on orders, and who looks after each."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0018_channels'),
    ]

    operations = [
        migrations.CreateModel(
            name='RunNote',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run_key', models.TextField(db_index=True, verbose_name='public id')),
                ('author', models.TextField(verbose_name='author')),
                ('text', models.TextField(verbose_name='text')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='at')),
            ],
            options={
                'verbose_name': 'note on an order',
                'verbose_name_plural': 'notes on orders',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='Assignee',
            fields=[
                ('run_key', models.TextField(primary_key=True, serialize=False, verbose_name='public id')),
                ('owner', models.TextField(verbose_name='owner')),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='since')),
            ],
            options={
                'verbose_name': 'owner of an order',
                'verbose_name_plural': 'owners of orders',
                'default_permissions': ('view',),
            },
        ),
    ]
