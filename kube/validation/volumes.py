"""Where volumes come from, in pods and as PersistentVolumes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    duplicate,
    forbidden,
    invalid,
    key_path,
    needed_causes,
    not_supported,
    range_causes,
    reason_causes,
    required,
    too_long,
)
from kube.requests.status import Cause
from kube.validation.downwardapi import field_reference_causes, resource_reference_causes
from kube.validation.filepaths import backstep_causes, local_path_causes, relative_path_causes
from kube.validation.metadata import annotation_causes, label_causes
from kube.validation.quantities import amount
from kube.validation.volumeclaims import claim_spec_causes

Source = dict[str, Any]
Check = Callable[[Source, str], list[Cause]]

_MODE_MAX: Final = 0o777
_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATHS: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_FIELD_PATHS: Final = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_TOKEN_SECONDS: Final = (600, 2**32)
_INITIATORS: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$", re.ASCII),
    "eui": re.compile(r"^eui.[A-Za-z0-9]{16}$", re.ASCII),
    "naa": re.compile(r"^naa.[A-Za-z0-9]{32}$", re.ASCII),
}


def volume_list_causes(
    volumes: Sequence[Source], path: str, pod_name: str = ""
) -> tuple[list[Cause], dict[str, Source]]:
    """What is wrong with a pod's volumes, and the good ones by name; ``pod_name`` is empty for a template's."""
    causes: list[Cause] = []
    good: dict[str, Source] = {}
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        name = volume.get("name", "")
        found = source_causes(volume, here, _POD_SOURCES)
        if "ephemeral" in volume and name and pod_name:
            claim = f"{pod_name}-{name}"
            found += [invalid(f"{here}.name", name, f'PVC name "{claim}": {r}') for r in names.dns_subdomain(claim)]
        if not name:
            found.append(required(f"{here}.name"))
        else:
            found += reason_causes(f"{here}.name", name, names.dns_label(name))
        if name in good:
            found.append(duplicate(f"{here}.name", name))
        if not found:
            good[name] = volume
        causes += found
    return causes, good


def source_causes(holder: Source, path: str, kinds: dict[str, Check]) -> list[Cause]:
    """What is wrong with the one source that there must be among ``kinds``."""
    causes: list[Cause] = []
    given = [field for field in kinds if field in holder]
    for position, field in enumerate(given):
        if position:
            causes.append(forbidden(f"{path}.{_SHOWN.get(field, field)}", "may not specify more than 1 volume type"))
        else:
            causes += kinds[field](holder[field], f"{path}.{_INSIDE.get(field, field)}")
    return causes if given else [required(path, "must specify a volume type")]


_SHOWN: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_INSIDE: Final = {"gcePersistentDisk": "persistentDisk"}
"""Where kube-apiserver names a field otherwise than the API does."""


def _mode_causes(body: Source, field: str, path: str) -> list[Cause]:
    mode = body.get(field)
    return [] if mode is None or 0 <= mode <= _MODE_MAX else [invalid(f"{path}.{field}", mode, _MODE)]


def _item_causes(item: Source, here: str) -> list[Cause]:
    causes = needed_causes(item, here, "key", "path") + local_path_causes(item.get("path", ""), f"{here}.path")
    return causes + _mode_causes(item, "mode", here)


def _items_causes(source: Source, path: str) -> list[Cause]:
    items = source.get("items", ())
    return [cause for index, item in enumerate(items) for cause in _item_causes(item, f"{path}.items[{index}]")]


def _needs(*fields: str) -> Check:
    """A source that must have these fields, and has nothing else to get wrong."""
    return lambda source, path: needed_causes(source, path, *fields)


def _empty_dir(source: Source, path: str) -> list[Cause]:
    limit = amount(source["sizeLimit"]) if "sizeLimit" in source else None
    if limit is not None and limit.nanos < 0:
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: Source, path: str) -> list[Cause]:
    if not source.get("path"):
        return [required(f"{path}.path")]
    causes = backstep_causes(source["path"], f"{path}.path")
    kind = source.get("type", "")
    return causes if kind in _HOST_PATHS else [*causes, not_supported(f"{path}.type", kind, _HOST_PATHS)]


def _git_repo(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "repository")
    return causes + relative_path_causes(source.get("directory", ""), f"{path}.directory")


def _disk(name: str) -> Check:
    def check(source: Source, path: str) -> list[Cause]:
        partition = source.get("partition", 0)
        wrong = [] if 0 <= partition <= 255 else [invalid(f"{path}.partition", partition, _PARTITION)]
        return needed_causes(source, path, name) + wrong

    return check


_PARTITION: Final = "must be between 1 and 255, inclusive"


def _secret(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "secretName") + _mode_causes(source, "defaultMode", path)
    return causes + _items_causes(source, path)


def _config_map(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "name") + _mode_causes(source, "defaultMode", path)
    return causes + _items_causes(source, path)


def _nfs(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "server", "path")
    where = source.get("path", "")
    return causes if where.startswith("/") else [*causes, invalid(f"{path}.path", where, "must be an absolute path")]


def _iscsi(words: str) -> Check:
    def check(source: Source, path: str) -> list[Cause]:
        causes = needed_causes(source, path, "targetPortal", "iqn")
        if source.get("iqn"):
            causes += _initiator_causes(source["iqn"], f"{path}.iqn", words)
        causes += range_causes(source.get("lun", 0), 0, 255, f"{path}.lun")
        chap = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
        if chap and "secretRef" not in source:
            causes.append(required(f"{path}.secretRef"))
        if "initiatorName" in source:
            causes += _initiator_causes(source["initiatorName"], f"{path}.initiatorname", words)
        return causes

    return check


def _initiator_causes(name: str, path: str, words: str) -> list[Cause]:
    shape = _INITIATORS.get(name[:3])
    if shape is None:
        return [invalid(path, name, words)]
    return [] if shape.search(name) else [invalid(path, name, "must be valid format")]


def _flocker(source: Source, path: str) -> list[Cause]:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    causes: list[Cause] = []
    if not name and not uid:
        causes.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uid:
        causes.append(invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        causes.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))
    return causes


def _secret_of(*fields: str, names_namespace: bool = False) -> Check:
    """A source with these fields whose secret, if it has one, must be named."""

    def check(source: Source, path: str) -> list[Cause]:
        causes = needed_causes(source, path, *fields)
        if "secretRef" in source:
            wanted = ("name", "namespace") if names_namespace else ("name",)
            causes += needed_causes(source["secretRef"], f"{path}.secretRef", *wanted)
        return causes

    return check


def _storage_os(*, names_namespace: bool = False) -> Check:
    of_secret = _secret_of(names_namespace=names_namespace)

    def check(source: Source, path: str) -> list[Cause]:
        causes = needed_causes(source, path, "volumeName")
        for field in ("volumeName", "volumeNamespace"):
            if source.get(field):
                causes += _label_causes(source[field], f"{path}.{field}")
        return causes + of_secret(source, path)

    return check


def _label_causes(text: str, path: str) -> list[Cause]:
    return reason_causes(path, text, names.dns_label(text))


def _quobyte(source: Source, path: str) -> list[Cause]:
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    causes: list[Cause] = []
    registry = source.get("registry", "")
    if not registry:
        causes.append(required(f"{path}.registry", pairs))
    elif len(source.get("tenant", "")) >= 65:
        causes.append(required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        causes += [invalid(f"{path}.registry", registry, pairs) for pair in registry.split(",") if ":" not in pair]
    return causes + needed_causes(source, path, "volume")


def _downward(source: Source, path: str) -> list[Cause]:
    causes = _mode_causes(source, "defaultMode", path)
    for item in source.get("items", ()):
        causes += _downward_file_causes(item, path)
    return causes


def _downward_file_causes(item: Source, path: str) -> list[Cause]:
    causes = needed_causes(item, path, "path") + local_path_causes(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        causes += field_reference_causes(item["fieldRef"], _FIELD_PATHS, f"{path}.fieldRef")
        if "resourceFieldRef" in item:
            both = "fieldRef and resourceFieldRef can not be specified simultaneously"
            causes.append(invalid(path, "resource", both))
    elif "resourceFieldRef" in item:
        causes += resource_reference_causes(item["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=True)
    else:
        causes.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return causes + _mode_causes(item, "mode", path)


def _fibre_channel(source: Source, path: str) -> list[Cause]:
    targets, ids = source.get("targetWWNs", []), source.get("wwids", [])
    here = f"{path}.targetWWNs"
    causes: list[Cause] = []
    if not targets and not ids:
        causes.append(required(here, "must specify either targetWWNs or wwids, but not both"))
    if targets and ids:
        causes.append(invalid(here, targets, "targetWWNs and wwids can not be specified simultaneously"))
    if targets and "lun" not in source:
        causes.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif targets:
        causes += range_causes(source["lun"], 0, 255, f"{path}.lun")
    return causes


def _flex(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "driver")
    for key in source.get("options", {}):
        domain = f".{key.partition('/')[0].lower()}"
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            here = key_path(f"{path}.options", key)
            causes.append(invalid(here, key, "kubernetes.io and k8s.io namespaces are reserved"))
    return causes


def _azure_disk(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "diskName", "diskURI")
    for field, choices in (("cachingMode", ("None", "ReadOnly", "ReadWrite")), ("kind", _AZURE_KINDS)):
        if field in source and source[field] not in choices:
            causes.append(not_supported(f"{path}.{field}", source[field], choices))
    kind, uri = source.get("kind"), source.get("diskURI", "")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        causes.append(not_supported(f"{path}.diskURI", uri, (_AZURE_MANAGED,)))
    elif kind not in (None, "Managed") and not uri.startswith("https://"):
        causes.append(not_supported(f"{path}.diskURI", uri, (_AZURE_BLOB,)))
    return causes


_AZURE_KINDS: Final = ("Dedicated", "Managed", "Shared")
_AZURE_MANAGED: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
)
_AZURE_BLOB: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def driver_causes(driver: str, path: str) -> list[Cause]:
    """What is wrong with the name of a CSI driver."""
    if not driver:
        return [required(path)]
    causes: list[Cause] = []
    if len(driver) > names.LABEL_MAX:
        causes.append(too_long(path, names.LABEL_MAX))
    return causes + reason_causes(path, driver, names.dns_subdomain(driver.lower()))


def _csi(source: Source, path: str) -> list[Cause]:
    causes = driver_causes(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source:
        name = source["nodePublishSecretRef"].get("name", "")
        if not name:
            causes.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            causes += reason_causes(f"{path}.name", name, names.dns_subdomain(name))
    return causes


def _csi_volume(source: Source, path: str) -> list[Cause]:
    causes = driver_causes(source.get("driver", ""), f"{path}.driver") + needed_causes(source, path, "volumeHandle")
    for field in (
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ):
        if field not in source:
            continue
        for part, rule in (("name", names.dns_subdomain), ("namespace", names.dns_label)):
            here, value = f"{path}.{field}.{part}", source[field].get(part, "")
            causes += reason_causes(here, value, rule(value)) if value else [required(here)]
    return causes


def _azure_file_volume(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "secretName", "shareName")
    return [*causes, required(f"{path}.secretNamespace")] if source.get("secretNamespace") == "" else causes


def _glusterfs_volume(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "endpoints", "path")
    namespace, here = source.get("endpointsNamespace"), f"{path}.endpointsNamespace"
    if namespace == "":
        causes.append(invalid(here, "", "if the endpointnamespace is set, it must be a valid namespace name"))
    elif namespace is not None:
        causes += reason_causes(here, namespace, names.dns_label(namespace))
    return causes


def _local(source: Source, path: str) -> list[Cause]:
    where = source.get("path", "")
    return backstep_causes(where, f"{path}.path") if where else [required(f"{path}.path")]


def _projected(source: Source, path: str) -> list[Cause]:
    causes = _mode_causes(source, "defaultMode", path)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources", ())):
        here = f"{path}.sources[{index}]"
        for field in ("secret", "configMap", "downwardAPI", "serviceAccountToken"):
            if field in projection:
                causes += _projection_causes(field, projection[field], f"{here}.{field}", path, taken)
        if len(projection) > 1:
            causes.append(forbidden(here, "may not specify more than 1 volume type per source"))
    return causes


def _projection_causes(kind: str, body: Source, here: str, path: str, taken: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    if kind == "serviceAccountToken":
        least, most = _TOKEN_SECONDS
        seconds = body.get("expirationSeconds", least)
        if seconds < least:
            detail = "may not specify a duration less than 10 minutes"
            causes.append(invalid(f"{here}.expirationSeconds", seconds, detail))
        if seconds > most:
            detail = "may not specify a duration larger than 2^32 seconds"
            causes.append(invalid(f"{here}.expirationSeconds", seconds, detail))
        if not body.get("path"):
            return [*causes, required(f"{path}.path")]
        return causes + local_path_causes(body["path"], f"{path}.path")
    if kind == "downwardAPI":
        for item in body.get("items", ()):
            causes += _downward_file_causes(item, here)
            causes += _taken_causes(item.get("path", ""), item.get("path", ""), path, taken)
        return causes
    causes += needed_causes(body, here, "name")
    for index, item in enumerate(body.get("items", ())):
        causes += _item_causes(item, f"{here}.items[{index}]")
        causes += _taken_causes(item.get("path", ""), body.get("name", ""), path, taken)
    return causes


def _taken_causes(file: str, shown: str, path: str, taken: set[str]) -> list[Cause]:
    """Two sources must not write the same file."""
    again = bool(file) and file in taken
    taken.add(file)
    return [invalid(path, shown, "conflicting duplicate paths")] if again else []


def _ephemeral(source: Source, path: str) -> list[Cause]:
    template, here = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        return [required(here)]
    metadata = template.get("metadata", {})
    causes = annotation_causes(metadata.get("annotations", {}), f"{here}.metadata.annotations")
    causes += label_causes(metadata.get("labels", {}), f"{here}.metadata.labels")
    others = (field for field in metadata if field not in ("annotations", "labels"))
    causes += [forbidden(f"{here}.metadata.{field}", "cannot be set") for field in others]
    return causes + claim_spec_causes(template.get("spec", {}), f"{here}.spec")


def _image(source: Source, path: str) -> list[Cause]:
    causes = needed_causes(source, path, "reference")
    policy, choices = source.get("pullPolicy"), ("Always", "IfNotPresent", "Never")
    return causes if policy in (None, *choices) else [*causes, not_supported(f"{path}.pullPolicy", policy, choices)]


def recycles_root(spec: Source) -> bool:
    """Whether a volume of the host's whole file system is to be wiped after use."""
    where = spec.get("hostPath", {}).get("path", "")
    policy = spec.get("persistentVolumeReclaimPolicy")
    return policy == "Recycle" and bool(where) and posixpath.normpath(where).strip("/") == ""


_POD_SOURCES: Final[dict[str, Check]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "secret": _secret,
    "nfs": _nfs,
    "iscsi": _iscsi("must be valid format starting with iqn, eui, or naa"),
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _secret_of("volumeID"),
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "configMap": _config_map,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os(),
    "projected": _projected,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
"""In kube-apiserver's order: the first one counts, the others are too many."""

VOLUME_SOURCES: Final[dict[str, Check]] = {
    "hostPath": _host_path,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "glusterfs": _glusterfs_volume,
    "flocker": _flocker,
    "nfs": _nfs,
    "rbd": _needs("monitors", "image"),
    "quobyte": _quobyte,
    "cephfs": _needs("monitors"),
    "iscsi": _iscsi("must be valid format"),
    "cinder": _secret_of("volumeID", names_namespace=True),
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureFile": _azure_file_volume,
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os(names_namespace=True),
    "csi": _csi_volume,
}
"""The sources of PersistentVolumes."""
