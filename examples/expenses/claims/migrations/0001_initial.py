from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.TextField(unique=True)),
                ("kind", models.TextField()),
                ("employee", models.TextField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
                ("taken_back", models.BooleanField(default=False)),
            ],
        ),
    ]
