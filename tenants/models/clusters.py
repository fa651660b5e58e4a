"""Where workspaces live, and how much each may use."""

from __future__ import annotations

import uuid

from django.core.validators import MaxValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kube.quota.storedbytes import MEBIBYTES_MAX


class PodSecurity(models.TextChoices):
    """The Pod Security Standard that a workspace's namespace enforces; there is none below baseline."""

    BASELINE = "baseline", _("Baseline")
    RESTRICTED = "restricted", _("Restricted")


class Network(models.TextChoices):
    """What a workspace's pods reach by default, and who reaches them."""

    TENANT = "tenant", _("The tenant's own workspaces, and DNS")
    INTERNET = "internet", _("The same, and addresses outside private networks")
    OPEN = "open", _("Everything")


class CredentialKind(models.TextChoices):
    """What people work with a workspace by."""

    GATEWAY = "gateway", _("Through Tenantry, by a file for two hours")
    EXEC = "exec", _("Through Tenantry, signed in by the browser")
    DIRECT = "direct", _("Straight at the cluster, by a file for two hours")


class RecordingMode(models.TextChoices):
    """What is kept of sessions in pods; input never is."""

    OFF = "off", _("Nothing")
    METADATA = "metadata", _("Who, when, where, how long and how much")
    OUTPUT = "output", _("The same, and all that was shown")


class Approval(models.TextChoices):
    """Who says yes to what somebody asks for; nobody ever decides about what they asked for themselves."""

    OWNER = "owner", _("An owner of the tenant, or an operator")
    OPERATOR = "operator", _("An operator")
    TWO = "two", _("Two persons, each of whom may")


class Tier(models.Model):
    """A plan: the quota and limits of a workspace and how many of them a user may have (GW2).

    ``quota`` is the ``hard`` map of a ResourceQuota; ``limit_range`` the ``limits`` list of a LimitRange.
    ``policies`` are the rules of ``kube.policies.policy`` that hold in its workspaces, ``request_limits`` the settings of
    ``kube.requests.ratelimits`` for their tenants. ``stored_mebibytes`` is what all objects of such a tenant may take in the
    product's database; without it ``TENANT_STORED_MEBIBYTES`` holds, 0 is no bound (AD8). ``recording`` is what is kept of
    sessions in their pods; ``proxies`` opens ``pods/proxy`` and ``services/proxy`` (GW4). With ``approval`` nobody
    takes it for themselves: it is asked for, and this is who decides (GW25).
    """

    name = models.SlugField(max_length=63, primary_key=True)
    display_name = models.CharField(_("display name"), max_length=64)
    description = models.CharField(max_length=256, blank=True)
    quota = models.JSONField(help_text=_("hard limits of the ResourceQuota, for example requests.cpu: 4"))
    limit_range = models.JSONField(help_text=_("limits of the LimitRange"), default=list)
    pod_security = models.CharField(
        _("pod security"), max_length=10, choices=PodSecurity.choices, default=PodSecurity.BASELINE
    )
    network = models.CharField(max_length=8, choices=Network.choices, default=Network.TENANT)
    policies = models.JSONField(default=dict, blank=True, help_text=_("rules about what its workspaces may hold"))
    request_limits = models.JSONField(
        _("limits on requests"), default=dict, blank=True, help_text=_("for example read_qps: 200, person_share: 50")
    )
    stored_mebibytes = models.PositiveIntegerField(
        _("stored mebibytes"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(MEBIBYTES_MAX)],
        help_text=_(
            "what all objects of its tenants may take in the database; 0 is no bound, empty the server's default"
        ),
    )
    recording = models.CharField(
        _("recorded of sessions in pods"), max_length=8, choices=RecordingMode.choices, default=RecordingMode.OFF
    )
    proxies = models.BooleanField(
        _("proxy into pods and services"),
        default=False,
        db_default=False,
        help_text=_("kubectl proxy and the API servers' own proxy reach what listens in its workspaces"),
    )
    workspaces_per_user = models.PositiveIntegerField(_("workspaces per user"), default=1)
    is_available = models.BooleanField(_("offered to users"), default=True)
    approval = models.CharField(_("given on request by"), max_length=8, choices=Approval.choices, blank=True)
    position = models.PositiveSmallIntegerField(default=0)
    managed_by = models.CharField(max_length=63, blank=True, editable=False)
    """As of a tenant: the declaration that made it."""
    generation = models.PositiveBigIntegerField(default=1, editable=False)

    class Meta:
        db_table = "tiers"
        ordering = ["position", "name"]
        verbose_name = _("tier")
        verbose_name_plural = _("tiers")

    def __str__(self) -> str:
        return self.display_name or self.name


def direct_only() -> list[str]:
    """What clusters offered before there was a choice."""
    return [CredentialKind.DIRECT]


class Cluster(models.Model):
    """A Kubernetes API server that workspaces are made on (GW12).

    ``sealed_credential`` is the gateway's kubeconfig, encrypted; it is never shown. Changing the server or the CA
    wipes it. ``client_url`` is what kubeconfigs of tenants point at. ``away_until`` keeps workers off a cluster that
    does not answer, so that it does not hold up the others'. ``ingress_domain`` is what host names of tenants are
    within (``<tenant>.<domain>``); without one they may claim none. ``limits_events`` lets them
    write events, which no quota of Kubernetes counts. ``opened`` says line by line which of the cluster's own objects its
    tenants see (``kube.kinds.openings``). ``storage_classes`` are those of the cluster that make volumes,
    ``unclaimed_namespaces`` those that carry our labels and belong to nobody, ``credential_kinds`` what people may be
    given for its workspaces, the recommended one first, ``checks`` the findings of the last self-check. ``identity`` is
    the UID of its namespace ``kube-system``, empty until it has said so;
    ``version``, ``latency_ms``, ``last_seen_at`` and ``unreached_since`` are what the last probes brought;
    ``admission_asked_at`` is when it has last asked the webhook of admission, as the API servers tell within a minute.
    """

    class Kind(models.TextChoices):
        """The product's own API server, or a real one."""

        EMBEDDED = "embedded", _("Embedded")
        EXTERNAL = "external", _("External")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=63, unique=True)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    server = models.URLField(max_length=512)
    client_url = models.URLField(_("URL in kubeconfigs"), max_length=512, blank=True)
    ca_data = models.TextField(_("certificate authority (PEM)"))
    sealed_credential = models.BinaryField(null=True, editable=False)
    credential_expires_at = models.DateTimeField(null=True, editable=False)
    identity = models.CharField(max_length=64, blank=True, editable=False)
    version = models.CharField(max_length=64, blank=True, editable=False)
    latency_ms = models.PositiveIntegerField(null=True, editable=False)
    unreached_since = models.DateTimeField(null=True, editable=False)
    unreached_why = models.CharField(max_length=512, blank=True, editable=False)
    tenant_role = models.CharField(_("ClusterRole of tenants"), max_length=253, default="tenantry-tenant-admin")
    ingress_domain = models.CharField(_("domain of tenants' host names"), max_length=190, blank=True)
    credential_kinds = models.JSONField(_("credentials for people"), default=direct_only, blank=True)
    limits_events = models.BooleanField(_("limits the rate of events (EventRateLimit)"), default=False)
    opened = models.TextField(_("objects opened to tenants"), blank=True, default="")
    storage_classes = models.JSONField(default=list, editable=False)
    unclaimed_namespaces = models.JSONField(default=list, editable=False)
    checks = models.JSONField(default=list, editable=False)
    checked_at = models.DateTimeField(null=True, editable=False)
    is_default = models.BooleanField(_("default for new workspaces"), default=False)
    last_error = models.CharField(max_length=512, blank=True, editable=False)
    last_seen_at = models.DateTimeField(null=True, editable=False)
    away_until = models.DateTimeField(null=True, editable=False)
    admission_asked_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "clusters"
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=models.Q(is_default=True), name="cluster_one_default"
            ),
            models.CheckConstraint(condition=models.Q(server__startswith="https://"), name="cluster_server_https"),
        ]

    def __str__(self) -> str:
        return self.name


class ClusterProbe(models.Model):
    """One look at a cluster: the milliseconds until it said its version, or nothing where it did not."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="probes")
    at = models.DateTimeField()
    latency_ms = models.PositiveIntegerField(null=True)

    class Meta:
        db_table = "cluster_probes"
        indexes = [
            models.Index(fields=["cluster", "at"], name="cluster_probe_when"),
            models.Index(fields=["at"], name="cluster_probe_age"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster} at {self.at}"
