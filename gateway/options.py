"""How one API server is configured: read once from flags and settings, then handed down."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from access.authentication.options import AuthenticationOptions
from access.authorization.options import AuthorizationOptions
from access.flags import Growing, one
from kube.requests.ratelimits import Limits

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
WORKSPACE_DEPTH: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags of ``manage.py apiserver``, with kube-apiserver's names and meanings.

    Paths that are ``None`` are generated once into ``data_folder``. Durations are seconds.
    """

    database_url: str
    data_folder: Path
    keys_folder: Path | None = None
    """Where every key and certificate is already, only to be read; else they are generated into ``data_folder``."""
    certificate_names: tuple[str, ...] = ()
    """Host names and addresses that a generated server certificate is for, beside the usual ones."""
    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    permit_port_sharing: bool = False
    shutdown_delay_duration: float = 0.0
    workers: int = 1
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    service_account_issuers: tuple[str, ...] = (DEFAULT_ISSUER,)
    """All are accepted, and the first is that of new tokens."""
    service_account_signing_key_file: Path | None = None
    service_account_key_files: tuple[Path, ...] = ()
    api_audiences: tuple[str, ...] = ()
    portal_token_key_file: Path | None = None
    webhook_service_accounts: tuple[str, ...] = ()
    """The clusters at which tokens of service accounts of tenants' spaces are taken (GW17)."""
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    external_url: str = ""
    external_ca_file: Path | None = None
    workspace_depth: int = WORKSPACE_DEPTH
    anonymous_auth: bool = False
    disable_admission_plugins: tuple[str, ...] = ()
    admission_control_config_file: Path | None = None
    audit_policy_file: Path | None = None
    audit_log_path: Path | None = None
    reads_in_full: int | None = None
    requests_day_bytes: int | None = None
    max_token_lifetime: int = 86_400
    tenant_limits: Limits = field(default_factory=Limits)
    stored_mebibytes: int = 0

    @property
    def pki_folder(self) -> Path:
        """Where keys and certificates are that no flag names."""
        return self.keys_folder or self.data_folder / "pki"

    @property
    def url(self) -> str:
        """Where clients reach this server, without a slash at the end."""
        return self.external_url.rstrip("/") or f"https://{self.bind_address}:{self.secure_port}"

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences that a service-account token must name one of: the issuers unless configured."""
        return self.api_audiences or self.service_account_issuers


def add_issuers(parser: ArgumentParser) -> None:
    """Declare the flag on ``parser``: each time that it is given names one issuer more."""
    parser.add_argument(
        "--service-account-issuer",
        type=one(str),
        action=Growing,
        default=(DEFAULT_ISSUER,),
        help="issuer of service accounts' tokens; of several all are accepted, and the first is that of new ones",
    )
