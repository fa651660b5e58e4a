"""The checks of the Pod Security Standards: each looks at one thing in a pod, and says what it forbids.

The words, and what each version of a check forbids, are those of ``k8s.io/pod-security-admission/policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kube.podsecurity.levels import Level
from kube.requests.quoting import quoted


class Violation(NamedTuple):
    """What a pod does that a standard forbids: in short, and where."""

    reason: str
    detail: str


Look = Callable[[Mapping[str, Any], Mapping[str, Any]], Violation | None]
"""What is wrong in a pod's metadata and spec, defaults filled in."""


class Check(NamedTuple):
    """A check of a level. ``versions`` are the minor versions from which on each form of it holds.

    From its first version on it takes the place of ``overrides``, where the stricter level asks both.
    """

    name: str
    level: Level
    versions: tuple[tuple[int, Look], ...]
    overrides: str = ""


def each_container(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every container of a pod: of its start, its own, and those that came later."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _security(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return holder.get("securityContext") or {}


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _several(word: str, items: Collection[str]) -> str:
    return word if len(items) == 1 else f"{word}s"


def _named(names: Sequence[str]) -> str:
    return f"{_several('container', names)} {_quoted(names)}"


def _setters(pod: bool, names: Sequence[str]) -> str:
    """Who of a pod and its containers sets what it must not; empty for nobody."""
    return " and ".join([*(["pod"] if pod else ()), *([_named(names)] if names else ())])


def _which(spec: Mapping[str, Any], is_bad: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    return [str(container.get("name", "")) for container in each_container(spec) if is_bad(container)]


def _users_of_a_namespace_of_their_own(look: Look, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    """Where a pod's users are none of the host's, what they are inside does not matter."""
    return None if spec.get("hostUsers") is False else look(metadata, spec)


def _not_on_windows(look: Look, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    return None if (spec.get("os") or {}).get("name") == "windows" else look(metadata, spec)


def _privilege_escalation(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    bad = _which(spec, lambda each: _security(each).get("allowPrivilegeEscalation") is not False)
    if not bad:
        return None
    detail = f"{_named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def _apparmor(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def profile(holder: Mapping[str, Any]) -> str | None:
        given = _security(holder).get("appArmorProfile")
        return None if given is None else str(given.get("type", ""))

    def is_bad(holder: Mapping[str, Any]) -> bool:
        return profile(holder) not in (None, "RuntimeDefault", "Localhost")

    bad = _which(spec, is_bad)
    values = sorted({profile(holder) or "" for holder in (spec, *each_container(spec)) if is_bad(holder)})
    annotations = sorted(
        f"{key}={quoted(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(_APPARMOR) and not (value in ("", "runtime/default") or value.startswith("localhost/"))
    )
    setters = [setters for setters in (_setters(is_bad(spec), bad),) if setters]
    if annotations:
        values += annotations
        setters.append(_several("annotation", annotations))
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    return Violation(_several("forbidden AppArmor profile", values), detail)


_DEFAULT_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)


def _capabilities(container: Mapping[str, Any], field: str) -> Sequence[str]:
    return (_security(container).get("capabilities") or {}).get(field) or ()


def _adding(spec: Mapping[str, Any], allowed: Collection[str]) -> str:
    bad = _which(spec, lambda each: not set(_capabilities(each, "add")) <= set(allowed))
    if not bad:
        return ""
    added = sorted({name for each in each_container(spec) for name in _capabilities(each, "add")} - set(allowed))
    return f"{_named(bad)} must not include {_quoted(added)} in securityContext.capabilities.add"


def _added_capabilities(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    added = _adding(spec, _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", added) if added else None


def _kept_capabilities(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    keeping = _which(spec, lambda each: "ALL" not in _capabilities(each, "drop"))
    kept = f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]' if keeping else ""
    details = [detail for detail in (kept, _adding(spec, ("NET_BIND_SERVICE",))) if detail]
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _host_namespaces(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    bad = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{_several('volume', bad)} {_quoted(bad)}") if bad else None


def _host_ports(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def ports(container: Mapping[str, Any]) -> set[str]:
        return {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}

    bad = _which(spec, lambda each: bool(ports(each)))
    if not bad:
        return None
    taken = sorted({port for each in each_container(spec) for port in ports(each)})
    uses = "uses" if len(bad) == 1 else "use"
    return Violation("hostPort", f"{_named(bad)} {uses} {_several('hostPort', taken)} {', '.join(taken)}")


def _hosts_of_probes(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def hosts(container: Mapping[str, Any]) -> set[str]:
        lifecycle = container.get("lifecycle") or {}
        probes = [container.get(name) or {} for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        probes += [lifecycle.get(name) or {} for name in ("postStart", "preStop")]
        actions = [probe.get(action) or {} for probe in probes for action in ("httpGet", "tcpSocket")]
        return {action["host"] for action in actions if action.get("host")}

    bad = sorted({*_which(spec, lambda each: bool(hosts(each)))})
    if not bad:
        return None
    named = sorted({host for each in each_container(spec) for host in hosts(each)})
    uses = "uses" if len(bad) == 1 else "use"
    reason = "probe or lifecycle host"
    return Violation(reason, f"{_named(bad)} {uses} {_several(reason, named)} {_quoted(named)}")


def _privileged(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    bad = _which(spec, lambda each: bool(_security(each).get("privileged")))
    return Violation("privileged", f"{_named(bad)} must not set securityContext.privileged=true") if bad else None


def _proc_mounts(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def mount(container: Mapping[str, Any]) -> str:
        given = _security(container).get("procMount")
        return "Default" if given is None else given

    bad = _which(spec, lambda each: mount(each) != "Default")
    if not bad:
        return None
    values = sorted({mount(each) for each in each_container(spec)} - {"Default"})
    return Violation("procMount", f"{_named(bad)} must not set securityContext.procMount to {_quoted(values)}")


_VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_RESTRICTED_VOLUMES: Final = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)


def _volumes(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    bad: list[str] = []
    types: set[str] = set()
    for volume in spec.get("volumes") or ():
        given = {field for field, value in volume.items() if value is not None}
        if not given & _VOLUMES:
            bad.append(volume.get("name", ""))
            types.add(next((name for name in _RESTRICTED_VOLUMES if name in given), "unknown"))
    if not bad:
        return None
    uses = "uses" if len(bad) == 1 else "use"
    kinds = f"{_several('restricted volume type', types)} {_quoted(sorted(types))}"
    return Violation("restricted volume types", f"{_several('volume', bad)} {_quoted(bad)} {uses} {kinds}")


def _non_root(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    of_pod = _security(spec).get("runAsNonRoot")
    setters = _setters(of_pod is False, _which(spec, lambda each: _security(each).get("runAsNonRoot") is False))
    reason = "runAsNonRoot != true"
    if setters:
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    unset = [] if of_pod else _which(spec, lambda each: _security(each).get("runAsNonRoot") is None)
    if not unset:
        return None
    return Violation(reason, f"pod or {_named(unset)} must set securityContext.runAsNonRoot=true")


def _user(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def is_root(holder: Mapping[str, Any]) -> bool:
        return _security(holder).get("runAsUser") == 0

    setters = _setters(is_root(spec), _which(spec, is_root))
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


_SELINUX: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})


def _selinux(allowed: Collection[str], _metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def options(holder: Mapping[str, Any]) -> Mapping[str, Any]:
        return _security(holder).get("seLinuxOptions") or {}

    def is_bad(holder: Mapping[str, Any]) -> bool:
        given = options(holder)
        return given.get("type", "") not in allowed or bool(given.get("user") or given.get("role"))

    setters = _setters(is_bad(spec), _which(spec, is_bad))
    if not setters:
        return None
    everywhere = [options(holder) for holder in (spec, *each_container(spec))]
    types = sorted({given.get("type", "") for given in everywhere} - set(allowed))
    said = [f"{_several('type', types)} {_quoted(types)}"] if types else []
    said += [f"{field} may not be set" for field in ("user", "role") if any(given.get(field) for given in everywhere)]
    return Violation("seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(said)}")


_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    keys = [_SECCOMP, *(_SECCOMP_CONTAINER + str(each.get("name", "")) for each in each_container(spec))]
    given = {key: (metadata.get("annotations") or {}).get(key) for key in keys}
    bad = sorted(
        f"{key}={quoted(value)}"
        for key, value in given.items()
        if value is not None and value not in ("runtime/default", "docker/default") and value[:10] != "localhost/"
    )
    return Violation("seccompProfile", f"forbidden {_several('annotation', bad)} {', '.join(bad)}") if bad else None


def _profile(holder: Mapping[str, Any]) -> str | None:
    given = _security(holder).get("seccompProfile")
    return None if given is None else str(given.get("type", ""))


def _seccomp(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def is_bad(holder: Mapping[str, Any]) -> bool:
        return _profile(holder) not in (None, "Localhost", "RuntimeDefault")

    setters = _setters(is_bad(spec), _which(spec, is_bad))
    if not setters:
        return None
    values = sorted({_profile(holder) or "" for holder in (spec, *each_container(spec)) if is_bad(holder)})
    return Violation(
        "seccompProfile", f"{setters} must not set securityContext.seccompProfile.type to {_quoted(values)}"
    )


def _seccomp_set(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    violation = _seccomp(metadata, spec)
    if violation is not None:
        return violation
    unset = [] if _profile(spec) is not None else _which(spec, lambda each: _profile(each) is None)
    if not unset:
        return None
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_named(unset)} must set {wanted}")


_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
_SYSCTLS_27: Final = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29: Final = _SYSCTLS_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
_SYSCTLS_32: Final = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def _sysctls(allowed: Collection[str], _metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    given = [str(each.get("name", "")) for each in _security(spec).get("sysctls") or ()]
    bad = [name for name in given if name not in allowed]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def _host_processes(_metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Violation | None:
    def is_bad(holder: Mapping[str, Any]) -> bool:
        return bool((_security(holder).get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(is_bad(spec), _which(spec, is_bad))
    if not setters:
        return None
    return Violation("hostProcess", f"{setters} must not set securityContext.windowsOptions.hostProcess=true")


CHECKS: Final = (
    Check("appArmorProfile", Level.BASELINE, ((0, _apparmor),)),
    Check("capabilities_baseline", Level.BASELINE, ((0, _added_capabilities),)),
    Check("hostNamespaces", Level.BASELINE, ((0, _host_namespaces),)),
    Check("hostPathVolumes", Level.BASELINE, ((0, _host_paths),)),
    Check("hostPorts", Level.BASELINE, ((0, _host_ports),)),
    Check("hostProbesAndHostLifecycle", Level.BASELINE, ((34, _hosts_of_probes),)),
    Check("privileged", Level.BASELINE, ((0, _privileged),)),
    Check(
        "procMount",
        Level.BASELINE,
        ((0, _proc_mounts), (35, partial(_users_of_a_namespace_of_their_own, _proc_mounts))),
    ),
    Check(
        "seLinuxOptions",
        Level.BASELINE,
        ((0, partial(_selinux, _SELINUX)), (31, partial(_selinux, _SELINUX | {"container_engine_t"}))),
    ),
    Check("seccompProfile_baseline", Level.BASELINE, ((0, _seccomp_annotations), (19, _seccomp))),
    Check(
        "sysctls",
        Level.BASELINE,
        (
            (0, partial(_sysctls, _SYSCTLS)),
            (27, partial(_sysctls, _SYSCTLS_27)),
            (29, partial(_sysctls, _SYSCTLS_29)),
            (32, partial(_sysctls, _SYSCTLS_32)),
        ),
    ),
    Check("windowsHostProcess", Level.BASELINE, ((0, _host_processes),)),
    Check(
        "allowPrivilegeEscalation",
        Level.RESTRICTED,
        ((8, _privilege_escalation), (25, partial(_not_on_windows, _privilege_escalation))),
    ),
    Check(
        "capabilities_restricted",
        Level.RESTRICTED,
        ((22, _kept_capabilities), (25, partial(_not_on_windows, _kept_capabilities))),
        overrides="capabilities_baseline",
    ),
    Check("procMount_restricted", Level.RESTRICTED, ((35, _proc_mounts),), overrides="procMount"),
    Check("restrictedVolumes", Level.RESTRICTED, ((0, _volumes),), overrides="hostPathVolumes"),
    Check(
        "runAsNonRoot",
        Level.RESTRICTED,
        ((0, _non_root), (35, partial(_users_of_a_namespace_of_their_own, _non_root))),
    ),
    Check("runAsUser", Level.RESTRICTED, ((23, _user), (35, partial(_users_of_a_namespace_of_their_own, _user)))),
    Check(
        "seccompProfile_restricted",
        Level.RESTRICTED,
        ((19, _seccomp_set), (25, partial(_not_on_windows, _seccomp_set))),
        overrides="seccompProfile_baseline",
    ),
)
"""In the order in which their answers are told: baseline before restricted, each by its name (upper case first)."""
