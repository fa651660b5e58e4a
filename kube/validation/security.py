"""Security contexts of pods and containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    range_causes,
    reason_causes,
    required,
    too_long,
)
from kube.requests.status import Cause
from kube.validation.filepaths import relative_path_causes

_ID_MAX: Final = 2**31 - 1
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_PROFILE_MAX: Final = 4095
_SYSCTL_MAX: Final = 253
_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "fs.mqueue.")
_DOMAIN_MAX: Final = 256
_USER_MAX: Final = 104
_USER_CHARACTERS: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_NETBIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_SPEC_MAX: Final = 64 * 1024

_FIELDS: Final = (
    ("Capabilities", "capabilities"),
    ("Privileged", "privileged"),
    ("SELinuxOptions", "seLinuxOptions"),
    ("WindowsOptions", "windowsOptions"),
    ("RunAsUser", "runAsUser"),
    ("RunAsGroup", "runAsGroup"),
    ("RunAsNonRoot", "runAsNonRoot"),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
    ("ProcMount", "procMount"),
    ("SeccompProfile", "seccompProfile"),
    ("AppArmorProfile", "appArmorProfile"),
)
_PARTS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "capabilities": (("Add", "add"), ("Drop", "drop")),
    "seLinuxOptions": (("User", "user"), ("Role", "role"), ("Type", "type"), ("Level", "level")),
    "windowsOptions": (
        ("GMSACredentialSpecName", "gmsaCredentialSpecName"),
        ("GMSACredentialSpec", "gmsaCredentialSpec"),
        ("RunAsUserName", "runAsUserName"),
        ("HostProcess", "hostProcess"),
    ),
    "seccompProfile": (("Type", "type"), ("LocalhostProfile", "localhostProfile")),
    "appArmorProfile": (("Type", "type"), ("LocalhostProfile", "localhostProfile")),
}
_NOT_ON_WINDOWS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_NO_WINDOWS_PODS: Final = (
    ("appArmorProfile", True),
    ("seLinuxOptions", True),
    ("hostUsers", False),
    ("hostPID", False),
    ("hostIPC", False),
    ("seccompProfile", True),
    ("fsGroup", True),
    ("fsGroupChangePolicy", True),
    ("sysctls", True),
    ("shareProcessNamespace", False),
    ("runAsUser", True),
    ("runAsGroup", True),
    ("supplementalGroups", True),
    ("supplementalGroupsPolicy", True),
    ("seLinuxChangePolicy", True),
)
"""Fields that pods on Windows cannot have, and whether they stand in the security context."""


def security_context_causes(context: dict[str, Any], path: str, *, host_users: bool) -> list[Cause]:
    """What is wrong with a container's security context. Who may be privileged is for policies to say."""
    causes = _id_causes(context, path, "runAsUser", "runAsGroup")
    causes += choice_causes(context, "procMount", ("Default", "Unmasked"), path)
    if host_users and context.get("procMount") == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        causes.append(invalid(f"{path}.procMount", "Unmasked", detail))
    causes += _seccomp_causes(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        reason = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            causes.append(invalid(path, _shown(context), f"{reason} `privileged` to true"))
        if "CAP_SYS_ADMIN" in context.get("capabilities", {}).get("add", ()):
            causes.append(invalid(path, _shown(context), f"{reason} `capabilities.Add` CAP_SYS_ADMIN"))
    causes += _windows_causes(context.get("windowsOptions", {}), f"{path}.windowsOptions")
    return causes + _apparmor_causes(context.get("appArmorProfile"), f"{path}.appArmorProfile")


def pod_context_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a pod's security context."""
    context, here = spec.get("securityContext", {}), f"{path}.securityContext"
    causes = _id_causes(context, here, "fsGroup", "runAsUser", "runAsGroup")
    for index, group in enumerate(context.get("supplementalGroups", ())):
        causes += range_causes(group, 0, _ID_MAX, f"{here}.supplementalGroups[{index}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid(f"{here}.shareProcessNamespace", True, detail))
    causes += _sysctl_causes(spec, context.get("sysctls", ()), f"{here}.sysctls")
    causes += choice_causes(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), here)
    causes += _seccomp_causes(context.get("seccompProfile"), f"{here}.seccompProfile")
    causes += _windows_causes(context.get("windowsOptions", {}), f"{here}.windowsOptions")
    causes += _apparmor_causes(context.get("appArmorProfile"), f"{here}.appArmorProfile")
    causes += choice_causes(context, "supplementalGroupsPolicy", ("Merge", "Strict"), here)
    return causes + choice_causes(context, "seLinuxChangePolicy", ("MountOption", "Recursive"), here)


def host_user_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """A pod with users of its own shares nothing else with its node."""
    if spec.get("hostUsers", True):
        return []
    shared = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    return [forbidden(f"{path}.{shown}", "when `hostUsers` is false") for field, shown in shared if spec.get(field)]


def host_process_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """Containers that run as processes of a Windows host are alone in their pod, and in the host's network."""
    whole = _host_process(spec)
    causes: list[Cause] = []
    ours = []
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            own = _host_process(container)
            if None not in (whole, own) and own != whole:
                here = f"{path}.{field}[{index}].securityContext.windowsOptions.hostProcess"
                detail = f"pod hostProcess value must be identical if both are specified, was {str(whole).lower()}"
                causes.append(invalid(here, own, detail))
            ours.append(bool(whole if own is None else own))
    if any(ours) and not all(ours):
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        causes.append(invalid(path, "", detail))
    if any(ours) and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        causes.append(invalid(f"{path}.hostNetwork", False, detail))
    return causes


def _host_process(holder: dict[str, Any]) -> bool | None:
    given: bool | None = holder.get("securityContext", {}).get("windowsOptions", {}).get("hostProcess")
    return given


def system_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What a pod says that its operating system does not have."""
    system = spec.get("os")
    if system is None:
        return []
    name, choices = system.get("name", ""), ("linux", "windows")
    if not name:
        return [required(f"{path}.os.name")]
    if name not in choices:
        return [not_supported(f"{path}.os", name, choices)]
    containers = [
        (f"{path}.{field}[{index}].securityContext", container.get("securityContext", {}))
        for field in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(spec.get(field, ()))
    ]
    context, here = spec.get("securityContext", {}), f"{path}.securityContext"
    if name == "linux":
        places = [(here, context), *containers]
        detail = "windows options cannot be set for a linux pod"
        return [forbidden(f"{place}.windowsOptions", detail) for place, body in places if "windowsOptions" in body]
    detail = "cannot be set for a windows pod"
    causes = [
        forbidden(f"{here if inside else path}.{field}", detail)
        for field, inside in _NO_WINDOWS_PODS
        if (context if inside else spec).get(field) not in (None, False)
        or (field in ("hostUsers", "shareProcessNamespace") and field in spec)
    ]
    if "resources" in spec:
        causes.append(forbidden(f"{path}.resources", "may not be set for a windows pod"))
    return causes + [
        forbidden(f"{place}.{field}", detail)
        for place, body in containers
        for field in _NOT_ON_WINDOWS
        if field in body
    ]


def seccomp_text_causes(profile: str, path: str) -> list[Cause]:
    """What is wrong with a seccomp profile as annotations name it."""
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith("localhost/"):
        return relative_path_causes(profile.removeprefix("localhost/"), path)
    return [invalid(path, profile, "must be a valid seccomp profile")]


def _id_causes(context: dict[str, Any], path: str, *fields: str) -> list[Cause]:
    return [
        cause
        for field in fields
        if field in context
        for cause in range_causes(context[field], 0, _ID_MAX, f"{path}.{field}")
    ]


def _seccomp_causes(profile: dict[str, Any] | None, path: str) -> list[Cause]:
    if profile is None:
        return []
    kind, local, here = profile.get("type", ""), profile.get("localhostProfile"), f"{path}.localhostProfile"
    causes: list[Cause] = []
    if not kind:
        causes.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        causes.append(not_supported(f"{path}.type", kind, _PROFILES))
    if kind == "Localhost":
        if local is None:
            return [*causes, required(here, "must be set when seccomp type is Localhost")]
        return causes + relative_path_causes(local, here)
    if local is not None:
        shown = {"Type": kind, "LocalhostProfile": local}
        causes.append(invalid(here, shown, "can only be set when seccomp type is Localhost"))
    return causes


def _apparmor_causes(profile: dict[str, Any] | None, path: str) -> list[Cause]:
    if profile is None:
        return []
    kind, local, here = profile.get("type", ""), profile.get("localhostProfile"), f"{path}.localhostProfile"
    if not kind:
        return [required(f"{path}.type", "type is required when appArmorProfile is set")]
    if kind not in _PROFILES:
        return [not_supported(f"{path}.type", kind, _PROFILES)]
    if kind != "Localhost":
        detail = "can only be set when AppArmor type is Localhost"
        return [] if local is None else [invalid(here, local, detail)]
    if local is None:
        return [required(here, "must be set when AppArmor type is Localhost")]
    causes: list[Cause] = []
    if local != local.strip():
        causes.append(invalid(here, local, "must not be padded with whitespace"))
    elif not local:
        causes.append(required(here, "must be set when AppArmor type is Localhost"))
    if len(local.encode()) > _PROFILE_MAX:
        causes.append(too_long(here, _PROFILE_MAX))
    return causes


def _sysctl_causes(spec: dict[str, Any], sysctls: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here, name = f"{path}[{index}].name", sysctl.get("name", "")
        plain = name.replace("/", ".")
        if not name:
            causes.append(required(here))
        elif len(name) > _SYSCTL_MAX or not re.fullmatch(_SYSCTL, name, re.ASCII):
            causes.append(
                invalid(here, name, f"must have at most {_SYSCTL_MAX} characters and match regex ^{_SYSCTL}$")
            )
        elif name in seen:
            causes.append(duplicate(here, name))
        if spec.get("hostNetwork") and plain.startswith("net."):
            causes.append(invalid(here, name, "may not be specified when 'hostNetwork' is true"))
        if spec.get("hostIPC") and (plain.startswith(_IPC_SYSCTLS) or plain == "kernel.sem"):
            causes.append(invalid(here, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return causes


def _windows_causes(options: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if "gmsaCredentialSpecName" in options:
        name = options["gmsaCredentialSpecName"]
        causes += reason_causes(f"{path}.gmsaCredentialSpecName", name, names.dns_subdomain(name))
    spec, here = options.get("gmsaCredentialSpec"), f"{path}.gmsaCredentialSpec"
    if spec == "":
        causes.append(invalid(here, spec, "gmsaCredentialSpec cannot be an empty string"))
    elif spec is not None and len(spec.encode()) > _SPEC_MAX:
        causes.append(invalid(here, spec, "gmsaCredentialSpec size must be under 64 KiB"))
    user = options.get("runAsUserName")
    return causes if user is None else causes + reason_causes(f"{path}.runAsUserName", user, _user_reasons(user))


def _user_reasons(name: str) -> list[str]:
    """Why this is no user of Windows, with or without a domain."""
    if not name:
        return ["runAsUserName cannot be an empty string"]
    if re.search(r"[\x00-\x1f\x7f]", name):
        return ["runAsUserName cannot contain control characters"]
    if name.count("\\") > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    domain, slash, user = name.rpartition("\\")
    reasons = []
    if len(domain) >= _DOMAIN_MAX:
        reasons.append("runAsUserName's Domain length must be under 256 characters")
    if slash and not (_NETBIOS.fullmatch(domain) or _DOMAIN.fullmatch(domain[: 4 * _DOMAIN_MAX])):
        reasons.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        reasons.append("runAsUserName's User cannot be empty")
    elif len(user) > _USER_MAX:
        reasons.append("runAsUserName's User length must not be longer than 104 characters")
    user = user[: 4 * _USER_MAX]
    if user and not user.strip(". "):
        reasons.append("runAsUserName's User cannot contain only periods or spaces")
    if _USER_CHARACTERS.search(user):
        reasons.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return reasons


def _shown(context: dict[str, Any]) -> dict[str, Any]:
    """A security context as Go shows it."""
    shown: dict[str, Any] = {}
    for word, field in _FIELDS:
        value = context.get(field)
        parts = _PARTS.get(field)
        empty = "" if field == "seLinuxOptions" else None
        shown[word] = (
            value if parts is None or value is None else {name: value.get(part, empty) for name, part in parts}
        )
    return shown
