"""Selectors of controllers, and whether they find the pods of their own templates."""

from __future__ import annotations

from typing import Any

from kube.requests.fielderrors import forbidden, invalid, not_supported, required
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes
from kube.validation.pods import selects, template_causes


def controller_selector_causes(selector: dict[str, Any] | None, path: str, kind: str) -> list[Cause]:
    """What is wrong with a controller's selector; there must be one, and it must not be empty."""
    if selector is None:
        return [required(path)]
    causes = selector_causes(selector, path)
    if not is_selective(selector):
        causes.append(invalid(path, selector, f"empty selector is invalid for {kind}"))
    return causes


def is_selective(selector: dict[str, Any]) -> bool:
    """Whether a selector selects at all."""
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def mismatch_causes(selector: dict[str, Any] | None, template: dict[str, Any], path: str) -> list[Cause]:
    """Whether a good selector misses the pods of its own template; no selector finds nothing, an empty one all."""
    labels = template.get("metadata", {}).get("labels")
    if selector is not None and (not is_selective(selector) or selects(selector, labels or {})):
        return []
    shown = dict(sorted(labels.items())) if labels else labels
    return [invalid(f"{path}.metadata.labels", shown, "`selector` does not match template `labels`")]


def long_running_causes(template: dict[str, Any], path: str, owner: str) -> list[Cause]:
    """What is wrong with the template of pods that never end."""
    causes = template_causes(template, path)
    spec = template.get("spec", {})
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        causes.append(not_supported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if "activeDeadlineSeconds" in spec:
        detail = f"activeDeadlineSeconds in {owner} is not Supported"
        causes.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
    return causes
