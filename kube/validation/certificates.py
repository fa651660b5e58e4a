"""What a ``CertificateSigningRequest`` asks for, and what becomes of it: in kube-apiserver's words."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from kube.requests import names
from kube.requests.fielderrors import duplicate, forbidden, invalid, not_supported, required, too_long
from kube.requests.status import Cause

APISERVER_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
_LEGACY: Final = "kubernetes.io/legacy-unknown"
REQUEST_MAX: Final = 64 * 1024
"""Bytes of a request: enough for hundreds of names, and read in a moment however they are spent."""

_SHORTEST: Final = 600
_SIGNER_PATH: Final = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_USAGES: Final = (
    *("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment"),
    *("decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel"),
    *("ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime"),
    *("server auth", "signing", "timestamping"),
)
_DECIDED: Final = ("Approved", "Denied")
_FINAL: Final = (*_DECIDED, "Failed")
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"


def request_of(body: dict[str, Any]) -> x509.CertificateSigningRequest | None:
    """The first request in the PEM text, or ``None`` where there is none that can be read, or more than may be."""
    try:
        text = base64.b64decode(body.get("spec", {}).get("request", ""))
        if len(text) > REQUEST_MAX:
            return None
        start = text.index(b"-----BEGIN ")
        if not text.startswith(_BEGIN, start):
            return None
        return x509.load_pem_x509_csr(text[start : text.index(_END, start) + len(_END)])
    except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm):
        return None


def asks_for_masters(body: dict[str, Any]) -> bool:
    """Whether the certificate would make its holder a member of ``system:masters``."""
    request = request_of(body)
    found = request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME) if request is not None else ()
    return any(part.value == "system:masters" for part in found)


def new_request_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new request."""
    spec = body.get("spec", {})
    causes = _text_causes(body)
    usages = spec.get("usages", ())
    if not usages:
        causes.append(required("spec.usages"))
    causes += [not_supported(f"spec.usages[{at}]", one, _USAGES) for at, one in enumerate(usages) if one not in _USAGES]
    causes += [duplicate(f"spec.usages[{at}]", one) for at, one in enumerate(usages) if one in usages[:at]]
    causes += _signer_causes(spec.get("signerName", ""))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        words = f"may not specify a duration less than {_SHORTEST} seconds (10 minutes)"
        causes.append(invalid("spec.expirationSeconds", seconds, words))
    return causes + condition_causes(body)


def condition_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with the conditions: a request is approved or denied, once, and for good."""
    path = "status.conditions"
    causes: list[Cause] = []
    seen: list[str] = []
    for index, condition in enumerate(body.get("status", {}).get("conditions", ())):
        kind, status = condition.get("type", ""), condition.get("status", "")
        if not kind:
            causes.append(required(f"{path}[{index}].type"))
        allowed = ("True",) if kind in _FINAL else ("False", "True", "Unknown")
        if not status:
            causes.append(required(f"{path}[{index}].status"))
        elif status not in allowed:
            causes.append(not_supported(f"{path}[{index}].status", status, allowed))
        if kind in _DECIDED and any(other in seen for other in _DECIDED if other != kind):
            causes.append(invalid(path, kind, "Approved and Denied conditions are mutually exclusive"))
        if kind in seen:
            causes.append(duplicate(f"{path}[{index}].type", kind))
        seen.append(kind)
    return causes


def request_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What a change may not do to a request: take a decision back."""
    causes = condition_causes(new)
    for kind in _FINAL:
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            causes.append(forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"'))
    before, after = (body.get("status", {}).get("certificate") for body in (old, new))
    if before != after:
        causes += _certificate_causes(after or "")
        if before:
            causes.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
    return causes


def _certificate_causes(text: str) -> list[Cause]:
    """What is wrong with an issued chain, in PEM."""
    path, shown = "status.certificate", "<certificate data>"
    try:
        content = base64.b64decode(text)
    except ValueError:
        return [invalid(path, shown, "must be base64")]
    kinds = [kind.decode() for kind in _BLOCK.findall(content)]
    other = next((kind for kind in kinds if kind != "CERTIFICATE"), None)
    if other is not None:
        return [invalid(path, shown, f'only CERTIFICATE PEM blocks are allowed, found "{other}"')]
    if text and not kinds:
        return [invalid(path, shown, "must contain at least one CERTIFICATE PEM block")]
    try:
        if kinds:
            x509.load_pem_x509_certificates(content)
    except ValueError:
        return [invalid(path, shown, "x509: malformed certificate")]
    return []


def decision_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Why a write that is not about the approval may not be kept: it decides."""
    causes = []
    for kind in _DECIDED:
        before, after = _of_type(old, kind), _of_type(new, kind)
        if len(after) > len(before):
            causes.append(forbidden("status.conditions", f'updates may not add a condition of type "{kind}"'))
        elif len(after) == len(before) and before != after:
            causes.append(forbidden("status.conditions", f'updates may not modify a condition of type "{kind}"'))
    return causes


def _of_type(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for one in body.get("status", {}).get("conditions", ()) if one.get("type") == kind]


def _text_causes(body: dict[str, Any]) -> list[Cause]:
    text = body.get("spec", {}).get("request", "")
    if len(text) * 3 // 4 - text[-2:].count("=") > REQUEST_MAX:
        return [too_long("spec.request", REQUEST_MAX)]
    request = request_of(body)
    if request is None:
        return [invalid("spec.request", text, "PEM block type must be CERTIFICATE REQUEST")]
    try:
        valid = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        valid = False
    return [] if valid else [invalid("spec.request", text, "x509: the signature is not the requested key's")]


def _signer_causes(name: str) -> list[Cause]:
    path = "spec.signerName"
    if not name:
        return [required(path)]
    if name == _LEGACY:
        return [invalid(path, name, "the legacy signerName is not allowed via this API version")]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        return [invalid(path, name, _SIGNER_PATH)]
    causes = [too_long(path, names.SUBDOMAIN_MAX)] if len(domain) > names.SUBDOMAIN_MAX else []
    causes += _label_causes(path, domain, names.dns_label)
    if "." not in domain:
        causes.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    return causes + _label_causes(path, rest, names.dns_subdomain)


def _label_causes(path: str, text: str, reasons_of: Callable[[str], list[str]]) -> list[Cause]:
    """What is wrong with the first label that is wrong."""
    for label in text.split("."):
        reasons = reasons_of(label)
        if reasons:
            return [invalid(path, text, f'validating label "{label}": {reason}') for reason in reasons]
    return []
