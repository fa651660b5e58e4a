"""Service accounts' tokens where several processes serve: each knows of what the others have made (AN6)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from access.authentication.base import Credentials, Refused
from access.authentication.keyfiles import KeyFiles
from access.authentication.serviceaccount import ServiceAccountAuthenticator
from kube.authentication.serviceaccounttokens import Reference, ServiceAccountClaims, sign
from store.engine import Engine
from store.types import Create, Delete, Key
from tests.databases import migrated

ISSUER = "https://kubernetes.example"
SPACE, NAMESPACE = "root:acme", "default"


@pytest.fixture
async def processes() -> AsyncIterator[tuple[Engine, Engine]]:
    """The stores of two."""
    with migrated("accounts") as database:
        async with Engine(database) as one, Engine(database) as other:
            yield one, other


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    path = tmp_path / "signing.key"
    private = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    return KeyFiles([path], path)


async def made(store: Engine, resource: str, name: str) -> Reference:
    """An object of this name, with an identity of its own."""
    uid = str(uuid4())
    await store.commit(Create(Key(SPACE, "", resource, NAMESPACE, name), {"metadata": {"name": name, "uid": uid}}))
    return Reference(name, uid)


def token(keys: KeyFiles, account: Reference, secret: Reference) -> Credentials:
    now = int(time.time())
    claims = ServiceAccountClaims(
        issuer=ISSUER,
        audiences=("api",),
        issued_at=now - 10,
        not_before=now - 10,
        expires_at=now + 3600,
        token_id=str(uuid4()),
        tenant="acme",
        cluster=SPACE,
        namespace=NAMESPACE,
        account=account,
        secret=secret,
    )
    return Credentials(authorization=f"Bearer {sign(claims, keys.signer)}")


async def test_a_token_that_one_process_has_given_is_good_at_another_at_once(
    processes: tuple[Engine, Engine], keys: KeyFiles
) -> None:
    """What it is bound to was made, or made anew, a moment before; and when that has gone, so has the token."""
    here, there = processes
    asked = ServiceAccountAuthenticator(there, keys=keys, issuer=ISSUER, audiences=("api",))
    for _ in range(30):
        account, secret = await made(here, "serviceaccounts", "web"), await made(here, "secrets", "anchor")
        credentials = token(keys, account, secret)
        principal = await asked.authenticate(credentials, now=time.time())
        assert principal is not None and principal.uid == account.uid
        for resource, name in (("serviceaccounts", "web"), ("secrets", "anchor")):
            key = Key(SPACE, "", resource, NAMESPACE, name)
            stored = await here.get(key)
            assert stored is not None
            await here.commit(Delete(key, stored.revision, orjson.loads(stored.data)))
        assert await there.get(key) is None
        with pytest.raises(Refused, match="is gone"):
            await asked.authenticate(credentials, now=time.time())
