"""How rights are decided: the flags of ``manage.py apiserver`` about authorization, and what they mean."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from access.flags import Growing, UnusableFlags, file, seconds
from kube.workspaces.types import RequiredGroupsSyntax

MODES: Final = ("RBAC", "ABAC", "Node", "Webhook", "AlwaysAllow", "AlwaysDeny")
DEFAULT: Final = ("Node", "RBAC")
DENY: Final = "Deny"
NO_OPINION: Final = "NoOpinion"
"""What a webhook that gives no answer comes to; the words of kube-apiserver's ``failurePolicy``."""

AUTHORIZED_SECONDS: Final = 300.0
UNAUTHORIZED_SECONDS: Final = 30.0
"""How long a webhook's answers count; kube-apiserver's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationOptions:
    """kube-apiserver's names and meanings; durations are seconds. ``mode`` is the order in which they are asked.

    Raises ``UnusableFlags`` for a mode that is named twice.
    """

    mode: tuple[str, ...] = DEFAULT
    policy_file: Path | None = None
    webhook_config_file: Path | None = None
    webhook_cache_authorized_ttl: float = AUTHORIZED_SECONDS
    webhook_cache_unauthorized_ttl: float = UNAUTHORIZED_SECONDS
    webhook_failure_policy: str = DENY
    required_groups_dialect: RequiredGroupsSyntax = RequiredGroupsSyntax.DOCUMENT

    def __post_init__(self) -> None:
        if len(set(self.mode)) != len(self.mode):
            raise UnusableFlags(f"--authorization-mode={','.join(self.mode)}: a mode is named twice")

    @classmethod
    def of_flags(cls, flags: Mapping[str, Any]) -> AuthorizationOptions:
        """From what the command line gave."""
        return cls(
            mode=flags["authorization_mode"],
            policy_file=flags["authorization_policy_file"],
            webhook_config_file=flags["authorization_webhook_config_file"],
            webhook_cache_authorized_ttl=flags["authorization_webhook_cache_authorized_ttl"],
            webhook_cache_unauthorized_ttl=flags["authorization_webhook_cache_unauthorized_ttl"],
            webhook_failure_policy=flags["authorization_webhook_failure_policy"],
            required_groups_dialect=RequiredGroupsSyntax(flags["required_groups_dialect"]),
        )


def add_flags(parser: ArgumentParser, defaults: AuthorizationOptions) -> None:
    """Declare the flags on ``parser``; ``AuthorizationOptions.of_flags`` reads what argparse makes of them."""
    add = parser.add_argument
    add(
        "--authorization-mode",
        type=modes,
        action=Growing,
        default=defaults.mode,
        help=f"in order, of {','.join(MODES)}",
    )
    add("--authorization-policy-file", type=file, default=defaults.policy_file, help="policies of the mode ABAC")
    add(
        "--authorization-webhook-config-file",
        type=file,
        default=defaults.webhook_config_file,
        help="kubeconfig-format file of the SubjectAccessReview webhook of the mode Webhook",
    )
    add(
        "--authorization-webhook-cache-authorized-ttl",
        type=seconds,
        default=defaults.webhook_cache_authorized_ttl,
        help="how long its ALLOW counts",
    )
    add(
        "--authorization-webhook-cache-unauthorized-ttl",
        type=seconds,
        default=defaults.webhook_cache_unauthorized_ttl,
        help="how long its other answers count",
    )
    add(
        "--authorization-webhook-failure-policy",
        choices=(DENY, NO_OPINION),
        default=defaults.webhook_failure_policy,
        help="what it comes to when it gives no answer: a denial, or leave to ask the next mode",
    )
    add(
        "--required-groups-dialect",
        choices=[dialect.value for dialect in RequiredGroupsSyntax],
        default=defaults.required_groups_dialect.value,
        help="document: ; is and, comma is or; kcp: the other way round",
    )


def modes(text: str) -> tuple[str, ...]:
    """The modes in a list with commas; raises ``ArgumentTypeError`` for one that is unknown."""
    given = tuple(text.split(","))
    if unknown := [name for name in given if name not in MODES]:
        raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(MODES)}")
    return given
