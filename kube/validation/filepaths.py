"""Paths of files in objects."""

from __future__ import annotations

from kube.requests.fielderrors import invalid
from kube.requests.status import Cause


def backstep_causes(path: str, here: str) -> list[Cause]:
    """Why a path must not be followed: it leads out by ``..``."""
    return [invalid(here, path, "must not contain '..'")] if ".." in path.split("/") else []


def relative_path_causes(path: str, here: str) -> list[Cause]:
    """What is wrong with a path that must lead downwards from where it is used."""
    causes = [invalid(here, path, "must be a relative path")] if path.startswith("/") else []
    return causes + backstep_causes(path, here)


def local_path_causes(path: str, here: str) -> list[Cause]:
    """What is wrong with the path of a projected file."""
    causes = relative_path_causes(path, here)
    if path.startswith("..") and not path.startswith("../") and path != "..":
        causes.append(invalid(here, path, "must not start with '..'"))
    return causes
