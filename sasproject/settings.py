"""All settings, one file, sections in this order: start, applications, database, broker and Celery, engine, services,
web, security, API, console, languages, logging.

All tunable values come from the environment (`docs/operations.md` has the table). An invalid value stops the start with
one line that names the variable.
"""

from __future__ import annotations

import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

from sasproject import broker, database, factors, languages, logs, look, mail, sentry, tls
from sasproject.env import (
    env_bool,
    env_choice,
    env_counts,
    env_int,
    env_level,
    env_limits,
    env_list,
    env_percent,
    env_ports,
    env_seconds,
    env_secret,
    env_secret_key,
    env_secrets,
    env_str,
    env_template,
)
from supervision.embedded.server import database_url

# --- Start ------------------------------------------------------------------------------------------------------------

BASE_DIR = Path(__file__).resolve().parent.parent
DEBUG = env_bool("DEBUG", default=False)
SECRET_KEY = env_secret_key(debug=DEBUG)
# Older keys: what was signed with one of them stays valid while it is listed.
SECRET_KEY_FALLBACKS = env_secrets("SECRET_KEY_FALLBACKS")
# The keys of the secrets that the database holds: the first encrypts, all decrypt, and so do the two settings above.
FIELD_ENCRYPTION_KEYS = env_secrets("FIELD_ENCRYPTION_KEYS", shortest=32)
if Path(sys.argv[0]).name == "celery":
    DEBUG = False  # a worker shows no pages, and DEBUG would keep every SQL statement in memory
HOST = env_str("HOST", "127.0.0.1")
PORT = env_int("PORT", 8000)
# The public address of this site: links in mails begin with it.
PUBLIC_URL = env_str("PUBLIC_URL", f"http://{HOST}:{PORT}").rstrip("/")
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", ["*"] if DEBUG else ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS", [])
WEB_THREADS = env_int("WEB_THREADS", 6, minimum=1)  # requests that one process answers at the same time
# The directory of the embedded PostgreSQL's data, and of the log files.
STATE_DIR = Path(env_str("SAS_STATE_DIR", str(BASE_DIR / "var"))).resolve()

# --- Applications -----------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "unfold",  # before the admin, whose templates it replaces
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "sasproject.console_app.ConsoleConfig",
    "sasproject",  # before the accounts, whose `createsuperuser` it replaces
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "django_celery_beat",
    "django_htmx",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "supervision",
    "orders",
]

MIDDLEWARE = [
    "supervision.telemetry.middleware.measured",
    "django.middleware.security.SecurityMiddleware",
    "supervision.requestlog.middleware.recorded",
    "orders.middleware.content_security_policy",
    "orders.middleware.request_headers",
    "orders.middleware.stored_by_no_one",
    "orders.compression.Compression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "orders.middleware.Common",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "orders.identity.middleware.Identity",
    "allauth.account.middleware.AccountMiddleware",
    "orders.factors.middleware.SecondFactor",
    "django_htmx.middleware.HtmxMiddleware",
    "orders.middleware.UnreadableAddress",
]

ROOT_URLCONF = "sasproject.urls"
WSGI_APPLICATION = "sasproject.wsgi.application"
ASGI_APPLICATION = "sasproject.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "orders.factors.pages.sign_in_ways",
            ],
        },
    },
]

# --- Database ---------------------------------------------------------------------------------------------------------

DATABASES: dict[str, Any] = database.entries(database_url(STATE_DIR), WEB_THREADS)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The API's rate limiter counts in the cache, so all web processes have to share it.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "sas_cache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    },
}

# --- Broker and Celery ------------------------------------------------------------------------------------------------

# `supervision.celery` has the other options, with their reasons.
CELERY_BROKER_URL = env_secret("CELERY_BROKER_URL", "pgmq://")
CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options(CELERY_BROKER_URL, DATABASES.get("direct", DATABASES["default"]))
# Celery itself reads CELERY_BROKER_URL in the environment before it asks here. None: that URL.
CELERY_BROKER_READ_URL = CELERY_BROKER_WRITE_URL = broker.address(CELERY_BROKER_URL)
CELERY_BROKER_USE_SSL = tls.for_broker(CELERY_BROKER_URL, broker.transport(CELERY_BROKER_URL))
# With 0, what the processes use at RabbitMQ is declared beforehand, by `manage.py broker_topology`.
CELERY_BROKER_DECLARE = env_bool("CELERY_BROKER_DECLARE", default=True)
# Celery's remote control (`celery inspect`, `celery control`, Flower) and its events. There are none on pgmq.
CELERY_REMOTE_CONTROL = env_bool("CELERY_REMOTE_CONTROL", default=True)
CELERY_TASK_EVENTS = env_bool("CELERY_TASK_EVENTS", default=False)
CELERY_BROKER_HEARTBEAT = 20 if broker.transport(CELERY_BROKER_URL) == "amqp" else 0
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "supervisor"
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"
DJANGO_CELERY_BEAT_TZ_AWARE = True

# --- Engine -----------------------------------------------------------------------------------------------------------

SUPERVISION = {
    "SWEEP_SECONDS": env_seconds("SUPERVISION_SWEEP_SECONDS", 5.0),
    "COMPLETE_WITHIN": env_seconds("SUPERVISION_COMPLETE_WITHIN", None),
    "FAILURE_THRESHOLD": env_int("SUPERVISION_FAILURE_THRESHOLD", 5, minimum=1),
    "ON_EXHAUSTED": env_choice("SUPERVISION_ON_EXHAUSTED", None, ("error", "wait", "compensate", "skip")),
    "ON_PERMANENT": env_choice("SUPERVISION_ON_PERMANENT", None, ("error", "compensate", "skip")),
    "LONG_WAIT": env_seconds("SUPERVISION_LONG_WAIT", 300.0),
    "LEASE_SECONDS": env_seconds("SUPERVISION_LEASE_SECONDS", 10.0),
    "CANARY_SECONDS": env_seconds("SUPERVISION_CANARY_SECONDS", 10.0),
    "LOCAL_PICKUP": env_bool("SUPERVISION_LOCAL_PICKUP", default=env_bool("SUPERVISION_IDLE_AGENTS_CONSUME", default=True)),
    "PARTITIONS": env_counts("SUPERVISION_PARTITIONS"),
    "ARCHIVE_DAYS": None if env_str("SUPERVISION_ARCHIVE_DAYS").lower() == "off" else env_int("SUPERVISION_ARCHIVE_DAYS", 90, minimum=1),
    "DEAD_LETTER_DAYS": None if env_str("DEAD_LETTER_DAYS").lower() == "off" else env_int("DEAD_LETTER_DAYS", 90, minimum=1),
    "RECORD_DAYS": None if env_str("SUPERVISION_RECORD_DAYS").lower() == "off" else env_int("SUPERVISION_RECORD_DAYS", 3650, minimum=1),
    "EXCHANGE_DAYS": env_int("SUPERVISION_EXCHANGE_DAYS", 14, minimum=0),
    "REQUEST_LOG_DAYS": env_int("REQUEST_LOG_DAYS", 14, minimum=0),
    "REQUEST_LOG_ROWS": env_int("REQUEST_LOG_ROWS", 500_000, minimum=1),
    "KEY_DAYS": env_int("SUPERVISION_KEY_DAYS", 90, minimum=1),
    # The directory of the exported files. Each supervisor's machine may have its own.
    "JOURNAL_DIR": env_str("JOURNAL_DIR", str(STATE_DIR / "journal")),
    "INCIDENT_CRITICAL_ORDERS": env_int("INCIDENT_CRITICAL_ORDERS", 10, minimum=1),
    # A verb on an order with more money at stake waits until another operator approves it. Empty: off.
    "APPROVAL_ABOVE": env_limits("APPROVAL_ABOVE"),
    "APPROVAL_SECONDS": env_seconds("APPROVAL_WITHIN", 86_400.0),
    "LIVENESS_SECONDS": env_seconds("LIVENESS_SECONDS", 900.0),
    "PAUSE_BOUND": env_seconds("PAUSE_BOUND", 14_400.0),
    # The address of a trace in the tool that shows traces, with {trace_id} in it. Empty: no links.
    "TRACE_URL": env_template("TRACE_URL", "{trace_id}"),
    # The receivers of mails about incidents. The demo's mail simulator takes any address.
    "OPERATOR_EMAILS": env_list("OPERATOR_EMAILS", ["operators@shop.example"] if env_bool("DEBUG", default=False) else []),
}
# Failpoints, for tests. FAILPOINTS is refused unless ALLOW_FAILPOINTS is set, too.
FAILPOINTS = env_str("FAILPOINTS")
ALLOW_FAILPOINTS = env_bool("ALLOW_FAILPOINTS", default=False)

# --- Services ---------------------------------------------------------------------------------------------------------

# The defaults are the simulators of `manage.py simulators`.
STRIPE_API_BASE = env_str("STRIPE_API_BASE", "http://127.0.0.1:8010").rstrip("/")
STRIPE_API_KEY = env_secret("STRIPE_API_KEY", "sk_test_simulator")
# The secret under which Stripe signs its webhooks. Without one, every webhook is refused. The demo and its simulator share one.
STRIPE_WEBHOOK_SECRET = env_secret("STRIPE_WEBHOOK_SECRET", "whsec_demo_only" if env_bool("DEBUG", default=False) else "")
# How long a customer has to confirm a payment that the bank asks for, and how often the payment is looked at meanwhile, in seconds.
PAYMENT_ACTION_WITHIN = env_seconds("PAYMENT_ACTION_WITHIN", 3600.0)
PAYMENT_LOOK_AFTER = env_seconds("PAYMENT_LOOK_AFTER", 300.0)
# How long an order waits for a bank transfer, in seconds, and the account to transfer to. Without one, bank transfers are not taken.
TRANSFER_WITHIN = env_seconds("TRANSFER_WITHIN", 604_800.0)
BANK_ACCOUNT = env_str("BANK_ACCOUNT", "Harbour Goods, IT60 X054 2811 1010 0000 0123 456" if env_bool("DEBUG", default=False) else "")
# The seller on invoices, lines separated by |; the rate of VAT in percent, included in prices; the years for which documents are kept.
INVOICE_SELLER = env_str("INVOICE_SELLER", "Harbour Goods|Via del Porto 1|16126 Genova, Italy|VAT IT00000000000")
VAT_RATE = env_percent("VAT_RATE", "22")
DOCUMENT_YEARS = env_int("DOCUMENT_YEARS", 10, minimum=1)
# How long a return waits for its goods, in seconds; then it is cancelled.
RETURN_WITHIN = env_seconds("RETURN_WITHIN", 2_592_000.0)
# When a card is charged: `at-once`, at the checkout; or `after-booking`: reserved at the checkout, charged once the goods are booked.
# Each order keeps what was set when it was placed.
SHOP_CAPTURE = env_choice("SHOP_CAPTURE", "at-once", ("at-once", "after-booking"))
# How long an order whose payment is refused is kept, in seconds: its customer is reminded after a third of it.
PAYMENT_PATIENCE = env_seconds("PAYMENT_PATIENCE", 259_200.0)
# When the customer is mailed that a payment was refused, in seconds after the refusal. Who is still on the page pays again before.
PAYMENT_MAIL_AFTER = env_seconds("PAYMENT_MAIL_AFTER", 600.0)
# How often the payment of one order may be tried again after refusals.
PAYMENT_TRIES = env_int("PAYMENT_TRIES", 5, minimum=1)
CARRIER_URL = env_str("CARRIER_URL", "http://127.0.0.1:8010").rstrip("/")
CARRIER_API_KEY = env_secret("CARRIER_API_KEY", "carrier_test_simulator")
# The secret under which the carrier signs its webhooks. Without one, every webhook is refused.
CARRIER_WEBHOOK_SECRET = env_secret("CARRIER_WEBHOOK_SECRET", "carrier_demo_only" if env_bool("DEBUG", default=False) else "")
# The carrier is asked for a parcel without news after so many seconds, until its journey has ended or this time is over.
PARCEL_LOOK_AFTER = env_seconds("PARCEL_LOOK_AFTER", 21_600.0)
PARCEL_WATCHED_FOR = env_seconds("PARCEL_WATCHED_FOR", 2_592_000.0)
globals().update(mail.from_environment("EMAIL_URL", "smtp://127.0.0.1:8025"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env_str("DEFAULT_FROM_EMAIL", "Shop <orders@shop.example>")
WEBHOOK_ALLOW_PRIVATE = env_bool("WEBHOOK_ALLOW_PRIVATE", default=False)
WEBHOOK_PORTS = env_ports("WEBHOOK_PORTS", [80, 443])

# --- Web --------------------------------------------------------------------------------------------------------------

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [path for path in [BASE_DIR / "static"] if path.is_dir()]
# Static files have hashed names once `collectstatic` has run, as in the image. Before, they come straight from the packages.
_collected = (STATIC_ROOT / "staticfiles.json").is_file()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage",
    },
}
WHITENOISE_USE_FINDERS = not _collected
WHITENOISE_AUTOREFRESH = False
if not _collected:
    warnings.filterwarnings("ignore", "No directory at", UserWarning)  # whitenoise warns about STATIC_ROOT

# --- Security ---------------------------------------------------------------------------------------------------------

TRUST_PROXY = env_bool("TRUST_PROXY", default=False)
SECURE_SSL_REDIRECT = env_bool("SECURE_SSL_REDIRECT", default=not DEBUG)
# Probes come from inside the cluster, over plain HTTP and to an address instead of a name.
PROBES = ("healthz", "readyz", "metrics")
SECURE_REDIRECT_EXEMPT = [rf"^{probe}/?$" for probe in PROBES]
if TRUST_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
_https = not DEBUG and (SECURE_SSL_REDIRECT or TRUST_PROXY)
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _https
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = _https
_cookie = "__Host-" if _https else ""  # such cookies are taken from this host alone (sasproject.cookies)
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME, LANGUAGE_COOKIE_NAME = f"{_cookie}sessionid", f"{_cookie}csrftoken", f"{_cookie}language"
MESSAGE_STORAGE = "sasproject.cookies.Messages"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = LANGUAGE_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = LANGUAGE_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
# Too many tries end at the first. Then an account is found by its mail address, or by its username.
AUTHENTICATION_BACKENDS = [
    "orders.identity.backend.Guard",
    "orders.accounts.signing_in.ByMail",
    "django.contrib.auth.backends.ModelBackend",
]
PASSWORD_HASHERS = ["orders.identity.hashing.OneAtATime"]
# Operators' sessions end so long after the sign-in, and after so long without activity, in seconds.
OPERATOR_SESSION_SECONDS = env_seconds("OPERATOR_SESSION_SECONDS", 43_200.0)
OPERATOR_IDLE_SECONDS = env_seconds("OPERATOR_IDLE_SECONDS", 3600.0)
# Who enters the console needs a second factor; verbs that move money ask for a proof that is not older than this, in seconds.
CONSOLE_SECOND_FACTOR = factors.second_factor(debug=DEBUG)
REAUTHENTICATE_SECONDS = factors.REAUTHENTICATE_SECONDS
OIDC_GROUPS, OIDC_TRUSTS_MFA = factors.OIDC_GROUPS, factors.OIDC_TRUSTS_MFA
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = factors.OIDC_PROVIDERS
globals().update(factors.ALLAUTH)
LIVE_STREAMS_PER_ADDRESS = env_int("LIVE_STREAMS_PER_ADDRESS", 50, minimum=1)  # open live pages, in one process
# Orders without an account, from one network. The demo sets no limit, because one person tries everything there.
_guest_orders = env_str("GUEST_ORDERS", "off" if DEBUG else "20/h")
GUEST_ORDERS = None if _guest_orders.lower() == "off" else _guest_orders
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "orders.identity.passwords.CommonOrOurs"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- API --------------------------------------------------------------------------------------------------------------

API_THROTTLE = None if env_str("API_THROTTLE").lower() == "off" else env_str("API_THROTTLE", "120/min")
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "orders.api.authentication.TokenInOneQuery",
        "orders.api.authentication.WholeSession",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["orders.api.throttling.AccountAndAddressThrottle"],
    "DEFAULT_SCHEMA_CLASS": "orders.api.schema.DoorSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["supervision.api.requests.BoundedJSONParser"],
    "DEFAULT_METADATA_CLASS": None,  # no answer to OPTIONS: the schema describes the API
    "EXCEPTION_HANDLER": "orders.api.errors.problem_of",
    "URL_FORMAT_OVERRIDE": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
TOKEN_DAYS = env_int("TOKEN_DAYS", 90, minimum=1)  # how long a new token lasts, unless its maker says otherwise
REST_KNOX: dict[str, Any] = {
    "TOKEN_TTL": timedelta(days=TOKEN_DAYS),
    "AUTH_HEADER_PREFIX": "Token",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Orders",
    "DESCRIPTION": "Places orders and follows them. Refusals are problem documents (RFC 9457).",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "supervision.api.reference.problems.with_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "RunState": "supervision.api.shapes.RUN_STATES",
        "StepState": "supervision.api.shapes.STEP_STATES",
        "Direction": "supervision.api.shapes.DIRECTIONS",
        "PaymentState": "orders.payments.state.STATES",
        "JobState": "supervision.api.jobs.shapes.STATES",
        "ParcelState": "orders.parcels.shown.SHOWN",
        "Country": "orders.countries.DELIVERY_COUNTRIES",
        "Priority": "orders.validation.PRIORITIES",
        "Language": "orders.validation.LANGUAGES",
        "PauseScope": "supervision.api.governance_shapes.SCOPES",
        "BreakerState": "supervision.api.governance_shapes.BREAKERS",
        "PlanAction": "supervision.api.shapes.ACTIONS",
        "SignalOutcome": "supervision.api.shapes.OUTCOMES",
        "Severity": "supervision.api.incident_views.SEVERITIES",
        "DeliveryState": "supervision.api.outbound_shapes.DELIVERY_STATES",
        "Effect": "supervision.api.shapes.EFFECTS",
        "StatusEvent": "supervision.outbox.subscriptions.EVENTS",
        "StatusEventWish": "supervision.api.outbound_shapes.EVENT_WISHES",
    },
}

# --- Console ----------------------------------------------------------------------------------------------------------

UNFOLD = look.UNFOLD

# --- Languages --------------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGES = languages.offered(*LOCALE_PATHS, BASE_DIR / "supervision" / "locale")
FORMAT_MODULE_PATH = ["sasproject.formats"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

# --- Logging ----------------------------------------------------------------------------------------------------------

# A person reads lines at a terminal, a collector reads JSON.
LOGGING = logs.settings(env_choice("LOG_FORMAT", "line", ("line", "json")), env_level("LOG_LEVEL", "INFO"))
# The key of a receiver of traces, as `authorization=Bearer ...`. The rest of OpenTelemetry's variables is read by its SDK.
OTEL_EXPORTER_OTLP_HEADERS = env_secret("OTEL_EXPORTER_OTLP_HEADERS")
sentry.start(env_secret("SENTRY_DSN"), env_str("SENTRY_ENVIRONMENT", "production"))
