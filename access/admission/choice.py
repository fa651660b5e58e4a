"""Which of Kubernetes' plug-ins run: ``--enable-admission-plugins`` and ``--disable-admission-plugins``.

All of them do, unless one is switched off. What keeps tenants apart, and what objects must be, cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from access.admission.base import Plugin

OPTIONAL: Final = frozenset(
    (
        "DefaultIngressClass",
        "DefaultStorageClass",
        "DefaultTolerationSeconds",
        "LimitRanger",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "NodeRestriction",
        "PersistentVolumeClaimResize",
        "PodSecurity",
        "PodTopologyLabels",
        "ResourceQuota",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    )
)
FIXED: Final = frozenset(
    (
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "NamespaceLifecycle",
        "Priority",
        "RuntimeClass",
        "TaintNodesByCondition",
    )
)
"""Kubernetes' names for what this server does in any case."""

ABSENT: Final = frozenset(
    (
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "ClusterTrustBundleAttest",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "JobValidation",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "NodeDeclaredFeatureValidator",
        "OwnerReferencesPermissionEnforcement",
        "PodGroupProtection",
        "PodGroupWorkloadExists",
        "PodNodeSelector",
        "PodResizeValidator",
        "PodTolerationRestriction",
        "StorageObjectInUseProtection",
    )
)
"""Kubernetes' names for what never runs here: whoever switches it off has what was wanted."""

_P = TypeVar("_P", bound=Plugin)


class UnusablePlugins(ValueError):
    """Names that no plug-in has, or that ask for what cannot be; the message says which flag."""


def check(enabled: Sequence[str], disabled: Sequence[str]) -> None:
    """Raise ``UnusablePlugins`` for names that mean nothing, two things, or what is not there."""
    known = OPTIONAL | FIXED
    for flag, names, fitting in (("enable", enabled, known), ("disable", disabled, known | ABSENT)):
        unfit = sorted(set(names) - fitting)
        if unfit:
            what = "does not run here" if unfit[0] in ABSENT else "is unknown"
            raise UnusablePlugins(
                f"--{flag}-admission-plugins: {unfit[0]} {what}, there are {', '.join(sorted(known))}"
            )
    both = sorted(set(enabled) & set(disabled))
    if both:
        raise UnusablePlugins(f"{both[0]} is in --enable-admission-plugins and in --disable-admission-plugins")
    fixed = sorted(set(disabled) & FIXED)
    if fixed:
        raise UnusablePlugins(f"--disable-admission-plugins: {fixed[0]} cannot be switched off")


def chosen(plugins: Sequence[_P], disabled: Sequence[str]) -> list[_P]:
    """The plug-ins that run, in their order."""
    return [plugin for plugin in plugins if plugin.name not in disabled or plugin.name not in OPTIONAL]
