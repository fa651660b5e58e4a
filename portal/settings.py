"""Every setting, read once; nothing else reads the environment.

``docs/operators/operations.md`` explains those that an installation sets.
"""

from __future__ import annotations

import logging
import re
import shlex
from pathlib import Path
from typing import Any

import environ
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from environ.fileaware_mapping import FileAwareMapping

from access.admission import configuration
from access.authorization.options import (
    AUTHORIZED_SECONDS,
    DEFAULT,
    DENY,
    UNAUTHORIZED_SECONDS,
    AuthorizationOptions,
    modes,
)
from access.reloading import UnusableFile
from kube.workspaces.types import RequiredGroupsSyntax
from portal.database.addresses import resilient
from portal.http import proxies
from portal.pages.links import links_read
from portal.quickstart.embedded.sockets import OWNER, postgresql_url, redis_url
from portal.signin.oidc import mapping
from tenants.requests.approvers import approvers_read


class _Variables(FileAwareMapping):  # type: ignore[misc]
    """Each variable may be given as a file: ``DATABASE_URL_FILE`` holds what ``DATABASE_URL`` would.

    The line's end that editors leave in a file is none of it.
    """

    def __getitem__(self, key: str) -> str:
        return str(super().__getitem__(key)).strip()


class _Environment(environ.Env):  # type: ignore[misc]
    ENVIRON = _Variables()


env = _Environment()
BASE_DIR = Path(__file__).resolve().parent.parent

DATA_DIR = Path(env.str("TENANTRY_DATA_DIR", str(BASE_DIR / ".tenantry"))).resolve()
"""Where the quickstart keeps its database, certificates and keys."""


def _path(variable: str) -> Path | None:
    text: str = env.str(variable, "")
    return Path(text) if text else None


KEYS_DIR = _path("TENANTRY_KEYS_DIR")
"""A folder with every key and certificate, made by ``manage.py keys``: it is read, and nothing is generated."""

SECRET_FILES: list[Path] = []
"""Files of the data folder that hold secrets, there or not."""


def _secret(variable: str, file: str) -> str:
    """A secret from the environment, or from the folder of the keys, or of the data where the quickstart generated it."""
    value: str = env.str(variable, "")
    path = (KEYS_DIR or DATA_DIR) / file
    SECRET_FILES.append(path)
    if not value and path.is_file():
        value = path.read_text().strip()
    return value


DEBUG = False
SECRET_KEY, *SECRET_KEY_FALLBACKS = re.split(
    r"[\s,]+", _secret("SECRET_KEY", "secret-key") or "unsafe-key-for-commands-that-need-no-secret"
)
SECRET_KEY_FILE = None if env.str("SECRET_KEY", "") else (KEYS_DIR or DATA_DIR) / "secret-key"
"""Where they are read again when they change (``portal.http.secretkeys``)."""
SECRET_KEY_IS_SET = not SECRET_KEY.startswith("unsafe-")
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])
CORS_ALLOWED_ORIGINS: list[str] = env.list("CORS_ALLOWED_ORIGINS", default=[])
try:
    TRUSTED_PROXIES = proxies.parse(env.list("TRUSTED_PROXIES", default=[]))
except ValueError as error:
    raise ImproperlyConfigured(f"TRUSTED_PROXIES must name addresses or networks: {error}") from None
"""Who is believed about the sender's address (X-Forwarded-For) and scheme (X-Forwarded-Proto): nobody by default."""

SECURE_PROXY_SSL_HEADER = (proxies.SCHEME, "https")
if any("*" in origin for origin in CORS_ALLOWED_ORIGINS):
    raise ImproperlyConfigured("CORS_ALLOWED_ORIGINS must name each origin; a wildcard is refused (GW11).")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.forms",
    "portal.admin_site.TenantryAdminConfig",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "audit",
    "store",
    "tenants",
    "access",
    "gateway",
    "portal",
]

MIDDLEWARE = [
    "portal.middleware.ProxyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "portal.staticfiles.CompressingMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.middleware.PageCompressionMiddleware",
    "portal.middleware.RequestMiddleware",
    "portal.middleware.CorsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.middleware.SessionsMiddleware",
    "portal.middleware.ViewingMiddleware",
    "portal.middleware.AuditorMiddleware",
    "portal.middleware.ClosedMiddleware",
    "portal.middleware.PaceMiddleware",
    "portal.middleware.ScopeMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.middleware.SignInMiddleware",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.pages.navigation.page",
            ]
        },
    }
]

_EMBEDDED = DATA_DIR / "postgresql"
MIGRATION_DATABASE_URL = resilient(
    "MIGRATION_DATABASE_URL",
    env.str("MIGRATION_DATABASE_URL", "") or env.str("DATABASE_URL", "") or postgresql_url(_EMBEDDED, user=OWNER),
)
"""Whoever owns the tables, for migrations alone: the same database as ``DATABASE_URL``, as another role."""
DATABASE_URL = resilient("DATABASE_URL", env.str("DATABASE_URL", "") or postgresql_url(_EMBEDDED))
DATABASES = {
    "default": {
        **env.db_url_config(DATABASE_URL),
        "ENGINE": "portal.database",
        "ATOMIC_REQUESTS": False,
        # Every request has a thread of its own under ASGI: what it kept, no other would find, and nobody would close.
        "CONN_MAX_AGE": 0,
    }
}
_owner = env.db_url_config(MIGRATION_DATABASE_URL)
DATABASE_OWNER = {key: _owner.get(key, "") for key in ("USER", "PASSWORD", "HOST", "PORT")} | {
    "OPTIONS": _owner.get("OPTIONS", {})
}
"""How the same database is reached as its owner, who need not come by the product's way (a pooler)."""
REDIS_URL = env.str("REDIS_URL", "") or redis_url(DATA_DIR / "redis")
_REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
# One that answers nothing is away: pages go on without it.
CACHES = {"default": {**_REDIS, "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}}}

AUTHORIZATION = AuthorizationOptions(
    mode=modes(env.str("AUTHORIZATION_MODE", ",".join(DEFAULT))),
    policy_file=_path("AUTHORIZATION_POLICY_FILE"),
    webhook_config_file=_path("AUTHORIZATION_WEBHOOK_CONFIG_FILE"),
    webhook_cache_authorized_ttl=env.float("AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL", AUTHORIZED_SECONDS),
    webhook_cache_unauthorized_ttl=env.float("AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL", UNAUTHORIZED_SECONDS),
    webhook_failure_policy=env.str("AUTHORIZATION_WEBHOOK_FAILURE_POLICY", DENY),
    required_groups_dialect=RequiredGroupsSyntax(env.str("REQUIRED_GROUPS_DIALECT", RequiredGroupsSyntax.DOCUMENT)),
)
"""What ``manage.py apiserver`` decides by unless its flags say otherwise, and what the portal explains (AZ11)."""

ADMISSION_CONTROL_CONFIG_FILE = _path("ADMISSION_CONTROL_CONFIG_FILE")
"""What ``manage.py apiserver`` tells its admission plug-ins unless a flag names another file."""
try:
    _ADMISSION = configuration.read(ADMISSION_CONTROL_CONFIG_FILE)
except UnusableFile as error:
    raise ImproperlyConfigured(f"ADMISSION_CONTROL_CONFIG_FILE: {error}") from None
TENANT_QUOTA = _ADMISSION.tenant_quota.hard
"""The quota of tenants that are given none at their creation (AD1)."""
TENANT_POLICIES = _ADMISSION.tenant_policy
"""What the objects of every tenant may be, below the rules of its tiers and its own (AD5)."""

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "portal.signin.oidc.backend.OidcBackend"]
PASSWORD_HASHERS = ["portal.signin.hashing.InTurnArgon2"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SECOND_FACTOR_FOR_OPERATORS = env.bool("SECOND_FACTOR_FOR_OPERATORS", False)
"""Whether an operator who signs in by password needs an authenticator app (docs/access/sign-in.md)."""

SECOND_FACTOR_ISSUER = env.str("SECOND_FACTOR_ISSUER", "Tenantry")
"""What apps call this installation."""

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"

# Single sign-on: docs/access/sign-in.md. The names are mozilla-django-oidc's where it has them.
OIDC_OP_ISSUER = env.str("OIDC_OP_ISSUER", "")
OIDC_OP_CA_FILE = env.str("OIDC_OP_CA_FILE", "")
OIDC_PROVIDER_NAME = env.str("OIDC_PROVIDER_NAME", "")
OIDC_RP_CLIENT_ID = env.str("OIDC_RP_CLIENT_ID", "")
OIDC_RP_CLIENT_SECRET = _secret("OIDC_RP_CLIENT_SECRET", "oidc-client-secret")
OIDC_RP_SCOPES = env.str("OIDC_RP_SCOPES", "openid email profile")
OIDC_RP_SIGN_ALGO = env.str("OIDC_RP_SIGN_ALGO", "RS256")
OIDC_GROUPS_CLAIM = env.str("OIDC_GROUPS_CLAIM", "groups")
try:
    OIDC_GROUP_MAPPING = mapping.parse(env.json("OIDC_GROUP_MAPPING", default={}))
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None
if bool(OIDC_OP_ISSUER) != bool(OIDC_RP_CLIENT_ID):
    raise ImproperlyConfigured("OIDC_OP_ISSUER and OIDC_RP_CLIENT_ID go together.")
OIDC_USE_PKCE = True

# Without EMAIL_URL there is no mail server: links are copied, and nobody is sent one that they ask for.
EMAIL_URL = _secret("EMAIL_URL", "email-url")
globals().update(env.email_url_config(EMAIL_URL or "dummymail://"))
EMAIL_IS_SET = bool(EMAIL_URL)
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", "Tenantry <tenantry@localhost>")
EMAIL_TIMEOUT = 10

PORTAL_HTTPS = env.bool("PORTAL_HTTPS", False)
# Over plain HTTP (the quickstart on 127.0.0.1) browsers keep Secure cookies for this machine alone, and some not even then.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "__Host-session" if PORTAL_HTTPS else "session"
CSRF_COOKIE_NAME = "__Host-csrf" if PORTAL_HTTPS else "csrf"
DEVICE_COOKIE_NAME = "__Host-device" if PORTAL_HTTPS else "device"
"""Browsers in which an account has been signed in to (``portal.signin.attempts``)."""

SESSION_COOKIE_AGE = 12 * 3600
SECURE_SSL_REDIRECT = PORTAL_HTTPS
# Whoever probes and scrapes comes past the proxy.
SECURE_REDIRECT_EXEMPT = ["^(healthz|readyz|metrics)$"]
SECURE_HSTS_SECONDS = 31_536_000 if PORTAL_HTTPS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "manifest-src": [SELF],
    }
}

CSRF_FAILURE_VIEW = "portal.http.errors.csrf_failure"
FORM_RENDERER = "portal.pages.forms.Renderer"
# A cookie would let a stranger's site show our messages; the session does not.
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200
DATA_UPLOAD_MAX_NUMBER_FILES = 0
METRICS_TOKEN = _secret("METRICS_TOKEN", "metrics-token")
"""Opens ``/metrics`` to whoever bears it; without one it answers this host alone."""

WORKSPACE_INIT_WAIT = env.float("WORKSPACE_INIT_WAIT", 10.0)
"""Seconds for which ``POST /api/v1/workspaces/init`` waits for the worker before it answers 202."""

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.api.authentication.OidcAuthentication",
        "portal.api.authentication.AccessTokenAuthentication",
        "portal.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["portal.api.permissions.Scoped"],
    "DEFAULT_PARSER_CLASSES": ["portal.api.parsers.StrictJSONParser", "portal.api.parsers.StrictYAMLParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer", "portal.api.parsers.YAMLRenderer"],
    "DEFAULT_SCHEMA_CLASS": "portal.api.openapi.schema.Schema",
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.api.parsers.JsonOrYaml",
    "EXCEPTION_HANDLER": "portal.api.errors.handle",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tenantry",
    "DESCRIPTION": "Self-service workspaces on shared Kubernetes: onboarding, credentials, kill switch, audit.",
    "VERSION": "1.0.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [
        "portal.api.authentication.SessionAuthentication",
        "portal.api.authentication.AccessTokenAuthentication",
    ],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "RoleEnum": "tenants.models.Role",
        "WorkspaceStatusEnum": "tenants.models.Status",
        "TenantStateEnum": "tenants.models.TenantState",
        "NoticeKindEnum": "tenants.models.NoticeKind",
        "RequestKindEnum": "tenants.models.RequestKind",
        "RequestStateEnum": "tenants.models.RequestState",
        "ApprovalEnum": "tenants.models.Approval",
        "OutcomeEnum": "audit.models.Outcome",
        "CredentialKindEnum": "tenants.models.CredentialKind",
        "RecordingModeEnum": "tenants.models.RecordingMode",
        "CredentialRoleEnum": "portal.api.serializers.workspaces.CREDENTIAL_ROLES",
    },
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
FORMAT_MODULE_PATH = "portal.formats"
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_COLLECTED = _path("TENANTRY_STATIC_DIR")
"""Static files that were collected beforehand, as an image has them; ``bootstrap`` collects none then."""
STATIC_ROOT = STATIC_COLLECTED or DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "portal.staticfiles.HashedOnceCollected"},
}
# Where nothing has been collected (the quickstart, tests), files are served from where they are.
WHITENOISE_USE_FINDERS = not (STATIC_ROOT / "staticfiles.json").is_file()

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=")
# A Redis that answers nothing is one that is away: whoever waited for it would do nothing else.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 1, "socket_timeout": 5}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BEAT_SCHEDULER = "portal.scheduling:LeasedScheduler"
ALIVE_FILE = _path("ALIVE_FILE")
"""Touched every few seconds by workers and beat, which nobody can ask whether they are alive, whoever else is away."""

SEALING_KEYS: list[str] = env.list("TENANTRY_SEALING_KEYS", default=[]) or [
    key for key in re.split(r"[\s,]+", _secret("TENANTRY_SEALING_KEY", "sealing-key")) if key
]
"""Fernet keys for credentials at rest: the first encrypts, all decrypt."""
_SEALING_GIVEN = env.str("TENANTRY_SEALING_KEYS", "") or env.str("TENANTRY_SEALING_KEY", "")
SEALING_KEYS_FILE = None if _SEALING_GIVEN else (KEYS_DIR or DATA_DIR) / "sealing-key"
"""Where they are read again when they change."""

FAILPOINT = env.str("TENANTRY_FAILPOINT", "") if env.bool("TENANTRY_ALLOW_FAILPOINTS", False) else ""
"""Where a worker of a test run kills itself (``tenants.failpoints``)."""

try:
    WEBHOOK_ALLOWED_NETWORKS = proxies.parse(env.list("WEBHOOK_ALLOWED_NETWORKS", default=[]))
except ValueError as error:
    raise ImproperlyConfigured(f"WEBHOOK_ALLOWED_NETWORKS must name addresses or networks: {error}") from None
"""Networks that webhooks may speak to although they are not public: none by default."""
WEBHOOK_CA_FILE = _path("WEBHOOK_CA_FILE")
"""Certificates of the authorities that webhooks' servers are trusted by; the system's without one."""

API_REQUESTS_KEEP_DAYS = env.int("API_REQUESTS_KEEP_DAYS", 90)
"""How long requests to the API server are kept; audit entries are kept for ever."""
API_REQUESTS_KEEP_BYTES = env.int("API_REQUESTS_KEEP_BYTES", 20 * 2**30)
"""How much all of them may take, with their indexes: the oldest days go first."""
API_REQUESTS_DAYS_AT_LEAST = env.int("API_REQUESTS_DAYS_AT_LEAST", 14)
"""How many days those bytes hold whatever comes: who fills a day's part of them is only counted for the rest of it."""
API_REQUESTS_READS_IN_FULL = env.int("API_REQUESTS_READS_IN_FULL", None)
"""How many allowed reads of a kind are rows of their own in a quarter of a second; the rest are counted. Unset: all."""

try:
    REQUEST_APPROVERS = approvers_read(env.json("REQUEST_APPROVERS", default={}))
except ValueError as error:
    raise ImproperlyConfigured(f"REQUEST_APPROVERS: {error}") from None
"""Who decides what people ask for, by kind: ``owner``, ``operator`` or ``two`` (GW25, docs/requests.md)."""
try:
    WORKSPACE_LINKS = links_read(env.json("WORKSPACE_LINKS", default={}))
except ValueError as error:
    raise ImproperlyConfigured(f"WORKSPACE_LINKS: {error}") from None
"""Where the installation's own tools show a workspace, by name (GW14)."""
PORTAL_NAME = env.str("PORTAL_NAME", "Tenantry")[:40]
"""What the pages call this installation."""
REQUEST_DAYS = env.int("REQUEST_DAYS", 14)
"""After how many days a request that nobody has decided ends."""
CREDENTIAL_WARNING_DAYS = env.int("CREDENTIAL_WARNING_DAYS", 7)
"""How many days before the end of an access token its person is warned at most; 0 warns nobody."""
BACKUP_MAX_AGE_HOURS = env.int("BACKUP_MAX_AGE_HOURS", 36)
"""How old the newest backup may be before somebody is told; 0 where something else makes them (P12)."""

ENDED_ROWS_KEEP_DAYS = env.int("ENDED_ROWS_KEEP_DAYS", 400)
"""How long it is kept what was made in the portal and is over: requests, invitations, tokens, credentials, workspaces."""
TENANT_STORED_MEBIBYTES = env.int("TENANT_STORED_MEBIBYTES", 1024)
"""What all objects of a tenant may take in the database where none of its tiers says it; 0 is no bound (AD8)."""

RECORDINGS_KEEP_DAYS = env.int("RECORDINGS_KEEP_DAYS", 30)
"""How long recordings of sessions in pods are kept after their end."""
RECORDINGS_TENANT_MAX_MIB = env.int("RECORDINGS_TENANT_MAX_MIB", 10_240)
"""What all recordings of a tenant's sessions may hold; where that is full no session begins that has to be recorded."""
RECORDING_MAX_MIB = env.int("RECORDING_MAX_MIB", 64)
"""What one recording may hold; a session that fills it is ended."""

PORTAL_PORT = env.int("PORTAL_PORT", 8000)
APISERVER_PORT = env.int("APISERVER_PORT", 6443)
WORKSPACE_DEPTH = env.int("WORKSPACE_DEPTH", 5)
"""How many workspaces deep a tenant may nest them (KC13)."""
APISERVER_URL = env.str("APISERVER_URL", f"https://127.0.0.1:{APISERVER_PORT}")
APISERVER_INTERNAL_URL = env.str("APISERVER_INTERNAL_URL", APISERVER_URL)
"""Where the product's own parts find it; people's kubeconfigs name ``APISERVER_URL``."""
APISERVER_CA_FILE = _path("APISERVER_CA_FILE")
"""What its certificate is verified with, where neither the generated CA nor the certificate itself is it."""
APISERVER_FLAGS: list[str] = shlex.split(env.str("APISERVER_FLAGS", ""))
"""Flags of ``manage.py apiserver`` that its command line need not repeat; the identity inspector goes by them."""

PORTAL_URL = env.str("PORTAL_URL", f"http://127.0.0.1:{PORTAL_PORT}").rstrip("/")
PKI_DIR = KEYS_DIR or DATA_DIR / "pki"
"""Where generated certificates and signing keys are kept, each readable by its owner alone."""

PORTAL_TOKEN_KEY_FILE = _path("PORTAL_TOKEN_KEY_FILE") or PKI_DIR / "portal-tokens.key"
"""The key (PEM) that signs people's tokens for the API server, which verifies them by ``--portal-token-key-file``."""

AUDIT_CHECKPOINTS_FILE = _path("AUDIT_CHECKPOINTS_FILE") or DATA_DIR / "audit-checkpoints.jsonl"
"""Where the signed ends of the audit's chains are appended, once a minute while anything happens (GW13)."""
AUDIT_CHECKPOINTS_KEY_FILE = _path("AUDIT_CHECKPOINTS_KEY_FILE") or PKI_DIR / "audit-checkpoints.key"
"""The Ed25519 key (PEM) that signs them; made when it is missing, its public half beside it as ``.pub``."""
AUDIT_CHECKPOINTS_URL = env.str("AUDIT_CHECKPOINTS_URL", "")
"""Where each of them is sent by POST as well."""
AUDIT_CHECKPOINTS_TOKEN = _secret("AUDIT_CHECKPOINTS_TOKEN", "audit-checkpoints-token")
if not re.match(r"https://|http://(127\.0\.0\.1|localhost)[:/]|$", AUDIT_CHECKPOINTS_URL):
    raise ImproperlyConfigured("AUDIT_CHECKPOINTS_URL must begin with https://.")


_COLLECTOR = env.str("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "") or env.str("OTEL_EXPORTER_OTLP_ENDPOINT", "")
TRACES = bool(_COLLECTOR) and env.str("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
TRACES = TRACES and env.str("OTEL_SDK_DISABLED", "").lower() != "true"
"""Whether every process sends traces to a collector; all else about it is read by OpenTelemetry (docs/operators/monitoring.md)."""
_PROTOCOL = env.str("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "") or env.str("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
if TRACES and _PROTOCOL != "http/protobuf":
    raise ImproperlyConfigured(
        "OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf: name the collector's HTTP port, mostly 4318."
    )
TRACES_HEADERS = env.str("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "") or env.str("OTEL_EXPORTER_OTLP_HEADERS", "")
"""What the collector is to know us by, as ``name=value,…``: a secret, mostly."""
TRACES_WAITING_MAX = env.int("OTEL_BSP_MAX_QUEUE_SIZE", 2048)
"""Spans that wait for the collector in a process; more are dropped."""
if TRACES:
    MIDDLEWARE.insert(MIDDLEWARE.index("portal.middleware.RequestMiddleware"), "portal.http.tracing.TracingMiddleware")


def _in_one_line(record: logging.LogRecord) -> bool:
    """What strangers send wrong (a host, a form) is a line of the log, not sixty of ours: they choose how often."""
    if record.name.startswith("django.security."):
        record.exc_info = record.exc_text = None
    return True


LOG_FORMAT = env.str("LOG_FORMAT", "line")
if LOG_FORMAT not in {"line", "json"}:
    raise ImproperlyConfigured("LOG_FORMAT is line or json.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "portal.logformat.LineFormatter", "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {"()": "portal.logformat.JSONFormatter"},
    },
    "filters": {"in-one-line": {"()": "django.utils.log.CallbackFilter", "callback": _in_one_line}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["in-one-line"]}},
    # One line for each sweep, every two seconds, says nothing.
    "loggers": {
        name: {"level": "WARNING"} for name in ("celery.app.trace", "celery.beat", "celery.worker.strategy", "authlib")
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", "INFO")},
}
