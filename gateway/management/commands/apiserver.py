"""``manage.py apiserver``: the Kubernetes-compatible API server."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError

from access.admission import choice, configuration
from access.authentication import options as authentication
from access.authentication.build import UnusableOptions, build_authenticators
from access.authorization import options as authorization
from access.authorization.build import check_options
from access.authorization.modes import always
from access.flags import FlagParser, Growing, UnusableFlags, add_switch, file, names, one, seconds
from access.reloading import UnusableFile
from access.requestlimits import READ, WATCH, WRITE
from audit import commands
from gateway.http.servers import PortTaken
from gateway.options import Options, add_issuers
from gateway.process.auditlog import read_policy_file
from gateway.server.supervisor import run
from kube.requests.ratelimits import Limits
from kube.requests.tokenbuckets import TokenBucket

_KINDS: Final = {READ: "reads", WRITE: "writes", WATCH: "watches opened"}


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ArgumentTypeError("a whole number is expected")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1e9:
        raise ArgumentTypeError("a number from 0 is expected")
    return amount


def _percentage(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:4]) <= 100:
        raise ArgumentTypeError("a percentage from 1 to 100 is expected")
    return int(text)


def declare(parser: ArgumentParser) -> None:
    """Declare every flag on ``parser``: kube-apiserver's where it has them; ``Options`` says what they mean."""
    add = parser.add_argument
    add("--bind-address", default="127.0.0.1", help="address to listen on")
    add("--secure-port", type=int, default=settings.APISERVER_PORT, help="port to listen on (APISERVER_PORT)")
    add_switch(
        parser,
        "--permit-port-sharing",
        meaning="let several servers listen on one address and port: the next takes over before this one ends",
    )
    add(
        "--shutdown-delay-duration",
        type=seconds,
        default=0.0,
        help="how long to serve on, not ready any more, before an end: until whoever sends requests here knows",
    )
    add("--tls-cert-file", type=file, help="server certificate; generated when not given")
    add("--tls-private-key-file", type=file, help="its key")
    add("--client-ca-file", type=file, help="CAs whose client certificates are accepted, beside the generated one")
    add_issuers(parser)
    add("--service-account-signing-key-file", type=file, help="key that signs them; generated when not given")
    add("--service-account-key-file", type=one(Path), action=Growing, default=(), help="keys that verify them")
    add("--portal-token-key-file", type=file, help="keys that verify people's tokens of the portal; generated")
    add(
        "--api-audiences",
        type=names,
        action=Growing,
        default=(),
        help="audiences of this server, the issuers by default",
    )
    add(
        "--webhook-service-accounts",
        type=names,
        action=Growing,
        default=(),
        metavar="CLUSTERS",
        help="clusters whose webhook of authentication takes tokens of service accounts of tenants' spaces",
    )
    add("--external-url", default="", help="where clients reach this server; its address by default")
    add(
        "--external-ca-file",
        type=file,
        default=settings.APISERVER_CA_FILE,
        help="what clients verify its certificate with (APISERVER_CA_FILE); the certificate's file, or the generated CA",
    )
    add(
        "--workspace-depth",
        type=int,
        choices=range(1, 15),
        default=settings.WORKSPACE_DEPTH,
        metavar="LEVELS",
        help="how many workspaces deep a tenant may nest them",
    )
    add_switch(parser, "--anonymous-auth", meaning="let requests without credentials in as system:anonymous")
    for verb, meaning in (("enable", "that must run; all do"), ("disable", "that do not run")):
        add(f"--{verb}-admission-plugins", type=names, action=Growing, default=(), help=f"admission plug-ins {meaning}")
    add(
        "--admission-control-config-file",
        type=file,
        default=settings.ADMISSION_CONTROL_CONFIG_FILE,
        help="AdmissionConfiguration with what admission plug-ins are told",
    )
    add("--audit-policy-file", type=file, help="audit.k8s.io/v1 Policy: which requests the audit log tells of")
    add("--audit-log-path", type=file, help="file of the audit log; - is the standard output")
    add("--workers", type=int, default=1, help="processes")
    authentication.add_flags(parser)
    authorization.add_flags(parser, settings.AUTHORIZATION)
    limits = Limits()
    for kind, meaning in _KINDS.items():
        rate: TokenBucket = getattr(limits, kind)
        add(f"--tenant-{kind}-qps", type=_amount, default=rate.qps, help=f"{meaning} a second of one tenant; 0: any")
        add(f"--tenant-{kind}-burst", type=_count, default=rate.burst, help=f"{meaning} at once after a pause")
    add("--tenant-max-watches", type=_count, default=limits.open_watches, help="open watches of one tenant; 0: any")
    add(
        "--tenant-person-share",
        type=_percentage,
        default=limits.person_share,
        help="percentage of a tenant's rates and open watches that one person may take",
    )


class Command(commands.Command):
    """Serves kubectl until it is told to stop. Flags have kube-apiserver's names and meanings."""

    help = "Run the Kubernetes-compatible API server."
    # They would load every page of the portal.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Every flag, as a default what the setting ``APISERVER_FLAGS`` says of it: the command line wins."""
        declare(parser)
        setting = FlagParser()
        declare(setting)
        try:
            parser.set_defaults(**vars(setting.parse_args(settings.APISERVER_FLAGS)))
        except UnusableFlags as error:
            parser.error(f"APISERVER_FLAGS: {error}")

    def handle(self, *_args: Any, **flags: Any) -> None:
        """Serve until SIGTERM or SIGINT. Raises ``CommandError`` for flags and files that cannot be used, and a port that is taken."""
        if bool(flags["tls_cert_file"]) != bool(flags["tls_private_key_file"]):
            raise CommandError("--tls-cert-file and --tls-private-key-file go together")
        if flags["anonymous_auth"] and always.ALLOW in flags["authorization_mode"]:
            raise CommandError(
                f"--anonymous-auth and the mode {always.ALLOW} exclude each other: anybody could do anything"
            )
        try:
            asked = authorization.AuthorizationOptions.of_flags(flags)
        except UnusableFlags as error:
            raise CommandError(str(error)) from None
        options = Options(
            database_url=settings.DATABASE_URL,
            data_folder=settings.DATA_DIR,
            keys_folder=settings.KEYS_DIR,
            bind_address=flags["bind_address"],
            secure_port=flags["secure_port"],
            permit_port_sharing=flags["permit_port_sharing"],
            shutdown_delay_duration=flags["shutdown_delay_duration"],
            workers=flags["workers"],
            tls_cert_file=flags["tls_cert_file"],
            tls_private_key_file=flags["tls_private_key_file"],
            client_ca_file=flags["client_ca_file"],
            service_account_issuers=flags["service_account_issuer"],
            service_account_signing_key_file=flags["service_account_signing_key_file"],
            service_account_key_files=flags["service_account_key_file"],
            api_audiences=flags["api_audiences"],
            portal_token_key_file=flags["portal_token_key_file"],
            webhook_service_accounts=flags["webhook_service_accounts"],
            external_url=flags["external_url"],
            external_ca_file=flags["external_ca_file"],
            workspace_depth=flags["workspace_depth"],
            anonymous_auth=flags["anonymous_auth"],
            disable_admission_plugins=flags["disable_admission_plugins"],
            admission_control_config_file=flags["admission_control_config_file"],
            audit_policy_file=flags["audit_policy_file"],
            audit_log_path=flags["audit_log_path"],
            reads_in_full=settings.API_REQUESTS_READS_IN_FULL,
            requests_day_bytes=settings.API_REQUESTS_KEEP_BYTES // max(settings.API_REQUESTS_DAYS_AT_LEAST, 1),
            authentication=authentication.AuthenticationOptions.of_flags(flags),
            authorization=asked,
            stored_mebibytes=settings.TENANT_STORED_MEBIBYTES,
            tenant_limits=Limits(
                **{kind: TokenBucket(flags[f"tenant_{kind}_qps"], flags[f"tenant_{kind}_burst"]) for kind in _KINDS},
                open_watches=flags["tenant_max_watches"],
                person_share=flags["tenant_person_share"],
            ),
        )
        try:
            # Once here, so that a wrong file ends the start with one line; the workers make their own.
            build_authenticators(options.authentication, service_account_issuers=options.service_account_issuers)
            check_options(options.authorization)
            configuration.read(options.admission_control_config_file)
            self._check_audit(options)
            choice.check(flags["enable_admission_plugins"], options.disable_admission_plugins)
        except (UnusableOptions, UnusableFile, choice.UnusablePlugins) as error:
            raise CommandError(str(error)) from None
        try:
            run(options, announce=lambda url: self.stdout.write(f"API server at {url}"))
        except (PortTaken, UnusableFile) as error:
            raise CommandError(str(error)) from None

    def _check_audit(self, options: Options) -> None:
        """A policy that can be used, and a word on one without a log, or a log without a policy, as kube-apiserver has it."""
        if options.audit_policy_file is not None:
            read_policy_file(options.audit_policy_file)
            if options.audit_log_path is None:
                self.stderr.write("No --audit-log-path provided, no events will be recorded")
        elif options.audit_log_path is not None:
            self.stderr.write("No audit policy file provided, no events will be recorded for log backend")
