"""Adds invoices and credit notes with their counters, and a rate of VAT without a value to products."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0006_warehouses'),
    ]

    operations = [
        migrations.AddField(
            model_name='product',
            name='vat_rate',
            field=models.DecimalField(blank=True, decimal_places=2, help_text="In percent, included in the price. Empty: the shop's usual rate.", max_digits=4, null=True, validators=[django.core.validators.MinValueValidator(0)], verbose_name='VAT rate'),
        ),
        migrations.CreateModel(
            name='Document',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.TextField(verbose_name='kind')),
                ('series', models.TextField(verbose_name='series')),
                ('year', models.IntegerField(verbose_name='year')),
                ('number', models.IntegerField(verbose_name='number')),
                ('order_key', models.TextField(verbose_name='order')),
                ('return_key', models.TextField(db_default='', default='', verbose_name='return')),
                ('issued_at', models.DateTimeField(verbose_name='issued at')),
                ('currency', models.CharField(max_length=3, verbose_name='currency')),
                ('total', models.DecimalField(decimal_places=2, max_digits=12, verbose_name='total')),
                ('vat', models.DecimalField(decimal_places=2, max_digits=12, verbose_name='VAT')),
                ('body', models.JSONField(verbose_name='body')),
            ],
            options={
                'verbose_name': 'invoice or credit note',
                'verbose_name_plural': 'invoices and credit notes',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('series', 'year', 'number'), name='a_number_of_a_series_is_used_once'), models.UniqueConstraint(fields=('order_key', 'kind', 'return_key'), name='an_order_has_one_invoice_and_a_return_one_credit_note'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'invoice'), ('return_key', '')), models.Q(('kind', 'credit_note'), models.Q(('return_key', ''), _negated=True)), _connector='OR'), name='a_document_is_an_invoice_or_of_a_return')],
            },
        ),
        migrations.CreateModel(
            name='DocumentCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('series', models.TextField(verbose_name='series')),
                ('year', models.IntegerField(verbose_name='year')),
                ('last', models.IntegerField(db_default=0, default=0, verbose_name='last number')),
            ],
            options={
                'verbose_name': 'number series',
                'verbose_name_plural': 'number series',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('series', 'year'), name='a_series_has_one_counter_a_year')],
            },
        ),
    ]
