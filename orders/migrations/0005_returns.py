"""Adds returns, and the count of what an order delivered and got back. New tables alone."""

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0004_parcels'),
    ]

    operations = [
        migrations.CreateModel(
            name='Return',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(max_length=64, unique=True, verbose_name='public id')),
                ('order_key', models.TextField(verbose_name='order')),
                ('number', models.CharField(max_length=40, unique=True, verbose_name='number')),
                ('reason', models.TextField(verbose_name='reason')),
                ('asked_by', models.TextField(verbose_name='asked by')),
                ('currency', models.CharField(max_length=3, verbose_name='currency')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created at')),
            ],
            options={
                'verbose_name': 'return',
                'verbose_name_plural': 'returns',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['order_key'], name='return_of_order')],
            },
        ),
        migrations.CreateModel(
            name='Returnable',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('order_key', models.TextField(verbose_name='order')),
                ('sku', models.CharField(max_length=64, verbose_name='SKU')),
                ('delivered', models.IntegerField(verbose_name='delivered')),
                ('returned', models.IntegerField(db_default=0, default=0, verbose_name='returned')),
            ],
            options={
                'verbose_name': 'returnable product',
                'verbose_name_plural': 'returnable products',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('order_key', 'sku'), name='an_order_has_a_returnable_product_once'), models.CheckConstraint(condition=models.Q(('returned__gte', 0), ('returned__lte', models.F('delivered'))), name='no_more_is_returned_than_delivered')],
            },
        ),
        migrations.CreateModel(
            name='ReturnLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sku', models.CharField(max_length=64, verbose_name='SKU')),
                ('name', models.CharField(max_length=200, verbose_name='name')),
                ('quantity', models.IntegerField(verbose_name='quantity')),
                ('unit_price', models.DecimalField(decimal_places=2, max_digits=10, verbose_name='unit price')),
                ('accepted', models.IntegerField(null=True, verbose_name='accepted')),
                ('refused', models.IntegerField(null=True, verbose_name='refused')),
                ('holds', models.IntegerField(verbose_name='holds')),
                ('restocked', models.IntegerField(db_default=0, default=0, verbose_name='restocked')),
                ('of', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='orders.return')),
            ],
            options={
                'verbose_name': 'return line',
                'verbose_name_plural': 'return lines',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('of', 'sku'), name='a_return_has_a_product_once'), models.CheckConstraint(condition=models.Q(('holds__gte', 0), ('holds__lte', models.F('quantity')), ('quantity__gt', 0), models.Q(('accepted', None), models.Q(('accepted__gte', 0), ('accepted__lte', django.db.models.expressions.CombinedExpression(models.F('quantity'), '-', models.F('refused'))), ('refused__gte', 0)), _connector='OR')), name='a_return_takes_back_what_was_asked'), models.CheckConstraint(condition=models.Q(('restocked', 0), models.Q(('accepted__isnull', False), ('restocked__gte', 0), ('restocked__lte', models.F('accepted'))), _connector='OR'), name='no_more_is_restocked_than_accepted')],
            },
        ),
    ]
