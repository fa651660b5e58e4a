"""API requests, partitioned by month so that forgetting is a DROP."""

import uuid

from django.db import migrations, models

FORWARD = """
CREATE TABLE api_requests (
  id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  tenant varchar(63) NOT NULL,
  space varchar(512) NOT NULL,
  actor varchar(253) NOT NULL,
  credential varchar(128) NOT NULL,
  verb varchar(32) NOT NULL,
  path varchar(1024) NOT NULL,
  code smallint NOT NULL CHECK (code >= 0),
  allowed boolean NOT NULL,
  step varchar(63) NOT NULL,
  reason varchar(512) NOT NULL,
  latency integer NOT NULL CHECK (latency >= 0),
  count integer NOT NULL CHECK (count >= 0),
  ip_address inet NULL,
  user_agent varchar(256) NOT NULL,
  request_id varchar(64) NOT NULL,
  PRIMARY KEY (created_at, id)
) PARTITION BY RANGE (created_at);
CREATE INDEX api_request_tenant_time ON api_requests (tenant, created_at DESC, id DESC);
CREATE INDEX api_request_time ON api_requests (created_at DESC, id DESC);

CREATE FUNCTION api_requests_partition(moment timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first timestamp := date_trunc('month', moment AT TIME ZONE 'UTC');
  name text := 'api_requests_' || to_char(first, 'YYYYMM');
BEGIN
  IF to_regclass(name) IS NOT NULL THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('api_requests_partition'));
  EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF api_requests FOR VALUES FROM (%L) TO (%L)',
                 name, first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC');
END $$;
"""

BACKWARD = """
DROP FUNCTION api_requests_partition(timestamptz);
DROP TABLE api_requests;
"""


class Migration(migrations.Migration):
    """The table by SQL, the model for Django."""

    dependencies = [("audit", "0002_append_only")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(FORWARD, BACKWARD)],
            state_operations=[
                migrations.CreateModel(
                    name='ApiRequest',
                    fields=[
                        ('pk', models.CompositePrimaryKey('created_at', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('id', models.UUIDField(default=uuid.uuid4, editable=False)),
                        ('created_at', models.DateTimeField()),
                        ('tenant', models.CharField(blank=True, max_length=63)),
                        ('space', models.CharField(blank=True, max_length=512)),
                        ('actor', models.CharField(blank=True, max_length=253)),
                        ('credential', models.CharField(blank=True, max_length=128)),
                        ('verb', models.CharField(max_length=32)),
                        ('path', models.CharField(max_length=1024)),
                        ('code', models.PositiveSmallIntegerField()),
                        ('allowed', models.BooleanField()),
                        ('step', models.CharField(blank=True, max_length=63)),
                        ('reason', models.CharField(blank=True, max_length=512)),
                        ('latency', models.PositiveIntegerField(default=0)),
                        ('count', models.PositiveIntegerField(default=1)),
                        ('ip_address', models.GenericIPAddressField(null=True)),
                        ('user_agent', models.CharField(blank=True, max_length=256)),
                        ('request_id', models.CharField(blank=True, max_length=64)),
                    ],
                    options={
                        'verbose_name': 'API request',
                        'verbose_name_plural': 'API requests',
                        'db_table': 'api_requests',
                        'indexes': [models.Index(fields=['tenant', '-created_at', '-id'], name='api_request_tenant_time'), models.Index(fields=['-created_at', '-id'], name='api_request_time')],
                    },
                ),
            ],
        )
    ]
