"""Which secrets a pod may use when its service account limits them, in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

ANNOTATION: Final = "kubernetes.io/enforce-mountable-secrets"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_CREATED: Final = (("initContainers", "init container"), ("containers", "container"))
_ADDED: Final = (("ephemeralContainers", "ephemeral container"),)


def limits_secrets(account: Mapping[str, Any]) -> bool:
    """Whether pods of this service account may use no other secrets than it names."""
    annotations = (account.get("metadata") or {}).get("annotations") or {}
    return annotations.get(ANNOTATION) in _TRUE


def new_pod_problems(spec: Mapping[str, Any], account: Mapping[str, Any]) -> Iterator[str]:
    """What a new pod uses that the account, which limits secrets, does not name."""
    secrets = _names(account.get("secrets"))
    name = account["metadata"]["name"]
    for volume in spec.get("volumes") or ():
        source = volume.get("secret")
        if source is not None and (used := source.get("secretName", "")) not in secrets:
            yield f'volume with secret.secretName="{used}" is not allowed because {_unnamed(name, "secret")}'
    yield from _container_problems(spec, _CREATED, secrets, name)
    pulling = _names(account.get("imagePullSecrets"))
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if (used := reference.get("name", "")) not in pulling:
            why = _unnamed(name, "imagePullSecret")
            yield f'imagePullSecrets[{index}].name="{used}" is not allowed because {why}'


def ephemeral_container_problems(spec: Mapping[str, Any], account: Mapping[str, Any]) -> Iterator[str]:
    """What a pod's ephemeral containers use that the account, which limits secrets, does not name."""
    yield from _container_problems(spec, _ADDED, _names(account.get("secrets")), account["metadata"]["name"])


def _container_problems(
    spec: Mapping[str, Any], fields: Sequence[tuple[str, str]], secrets: frozenset[str], account: str
) -> Iterator[str]:
    for field, words in fields:
        for container in spec.get(field) or ():
            for how, used in _used(container):
                if used not in secrets:
                    yield (
                        f'{words} {container.get("name", "")} with {how} referencing secret.secretName="{used}" is not '
                        f"allowed because {_unnamed(account, 'secret')}"
                    )


def _used(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable.get('name', '')}", reference.get("name", "")
    for source in container.get("envFrom") or ():
        reference = source.get("secretRef")
        if reference is not None:
            yield "envFrom", reference.get("name", "")


def _names(references: Any) -> frozenset[str]:
    return frozenset(reference.get("name", "") for reference in references or ())


def _unnamed(account: str, what: str) -> str:
    return f"service account {account} does not reference that {what}"
