"""Adds categories, and the category of a product: a nullable column, which old code does not notice."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0012_fill_customer'),
    ]

    operations = [
        migrations.CreateModel(
            name='Category',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True, verbose_name='address')),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('position', models.SmallIntegerField(db_default=0, default=0, help_text='Lower ones come first.', verbose_name='position')),
            ],
            options={
                'verbose_name': 'category',
                'verbose_name_plural': 'categories',
                'ordering': ['position', 'name'],
                'default_permissions': (),
            },
        ),
        migrations.AddField(
            model_name='product',
            name='category',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='products', to='orders.category', verbose_name='category'),
        ),
    ]
