"""Adds verified mail addresses and the address book. New tables alone."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("orders", "0020_adjustment_of_payment"),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedAddress',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='addresses', to=settings.AUTH_USER_MODEL, verbose_name='account')),
                ('name', models.CharField(max_length=100, verbose_name='full name')),
                ('line1', models.CharField(max_length=200, verbose_name='street and number')),
                ('line2', models.CharField(blank=True, db_default='', default='', max_length=200, verbose_name='flat, floor, company')),
                ('postal_code', models.CharField(max_length=20, verbose_name='postal code')),
                ('city', models.CharField(max_length=100, verbose_name='city')),
                ('country_area', models.CharField(blank=True, db_default='', default='', max_length=100, verbose_name='province or state')),
                ('country', models.CharField(max_length=2, verbose_name='country')),
                ('is_default', models.BooleanField(db_default=False, default=False, verbose_name='default')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'saved address',
                'verbose_name_plural': 'saved addresses',
                'default_permissions': (),
                'indexes': [models.Index(fields=['account', 'id'], name='address_of_account')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('account',), name='an_account_has_one_default_address')],
            },
        ),
        migrations.CreateModel(
            name='VerifiedEmail',
            fields=[
                ('account', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='verified_email', serialize=False, to=settings.AUTH_USER_MODEL, verbose_name='account')),
                ('address', models.CharField(max_length=254, unique=True, verbose_name='e-mail')),
                ('verified_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='verified at')),
            ],
            options={
                'verbose_name': 'verified e-mail',
                'verbose_name_plural': 'verified e-mails',
                'default_permissions': (),
            },
        ),
    ]
