"""Adds the warehouse of a product. A column with a constant default: no row is rewritten, and old code does not notice it."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0005_returns'),
    ]

    operations = [
        migrations.AddField(
            model_name='product',
            name='warehouse',
            field=models.SlugField(db_default='main', db_index=False, default='main', max_length=64, verbose_name='warehouse'),
        ),
    ]
