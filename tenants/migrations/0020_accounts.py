
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('sessions', '0001_initial'),
        ('tenants', '0019_invitations'),
    ]

    operations = [
        migrations.CreateModel(
            name='PasswordReset',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('made_by', models.CharField(blank=True, editable=False, max_length=254)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('expires_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(editable=False, null=True)),
            ],
            options={
                'verbose_name': 'password reset',
                'verbose_name_plural': 'password resets',
                'db_table': 'password_resets',
            },
        ),
        migrations.CreateModel(
            name='PortalSession',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('ip_address', models.GenericIPAddressField(null=True, verbose_name='IP address')),
                ('user_agent', models.CharField(blank=True, max_length=256)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('last_used_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'portal session',
                'verbose_name_plural': 'portal sessions',
                'db_table': 'portal_sessions',
            },
        ),
        migrations.CreateModel(
            name='RecoveryCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('used_at', models.DateTimeField(editable=False, null=True)),
            ],
            options={
                'verbose_name': 'recovery code',
                'verbose_name_plural': 'recovery codes',
                'db_table': 'recovery_codes',
            },
        ),
        migrations.CreateModel(
            name='SecondFactor',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='second_factor', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('sealed_secret', models.BinaryField()),
                ('last_step', models.BigIntegerField(default=0, editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('last_used_at', models.DateTimeField(editable=False, null=True)),
            ],
            options={
                'verbose_name': 'second factor',
                'verbose_name_plural': 'second factors',
                'db_table': 'second_factors',
            },
        ),
        migrations.AddField(
            model_name='user',
            name='is_auditor',
            field=models.BooleanField(default=False, verbose_name='auditor'),
        ),
        migrations.AddField(
            model_name='user',
            name='password_given',
            field=models.BooleanField(default=False, verbose_name='the password was given'),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('is_auditor', True), ('is_staff', True), _negated=True), name='user_operator_or_auditor'),
        ),
        migrations.AddField(
            model_name='passwordreset',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='password_resets', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='portalsession',
            name='session',
            field=models.OneToOneField(db_constraint=False, editable=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='sessions.session'),
        ),
        migrations.AddField(
            model_name='portalsession',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='portal_sessions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='recoverycode',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='recovery_codes', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='portalsession',
            index=models.Index(fields=['user', '-last_used_at'], name='portal_session_user_time'),
        ),
        # A session's end is the end of what is known of it, whoever deletes the row and whatever that one may see.
        migrations.RunSQL(
            "ALTER TABLE portal_sessions ADD CONSTRAINT portal_sessions_session_id_fk FOREIGN KEY (session_id) "
            "REFERENCES django_session (session_key) ON DELETE CASCADE",
            "ALTER TABLE portal_sessions DROP CONSTRAINT portal_sessions_session_id_fk",
        ),
    ]
