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
from store.types import Create, Delete, Key, Stored
from tests.databases import migrated

ISSUER = "https://kubernetes.example"
SPACE, NAMESPACE = "root:acme", "default"


class Counting(Engine):
    """A store that counts how often it was asked for what stands in the database now."""

    questions = 0

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        self.questions += not cached
        return await super().get(key, cached=cached)


@pytest.fixture
async def processes() -> AsyncIterator[tuple[Engine, Counting]]:
    """The stores of two."""
    with migrated("accounts") as database:
        async with Engine(database) as one, Counting(database) as other:
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
    processes: tuple[Engine, Counting], keys: KeyFiles
) -> None:
    """What it is bound to was made, or made anew, a moment before; and when that has gone, so has the token."""
    here, there = processes
    asked = ServiceAccountAuthenticator(there, keys=keys, issuers=(ISSUER,), audiences=("api",))
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


async def test_a_token_whose_end_was_seen_is_refused_at_once(
    processes: tuple[Engine, Counting], keys: KeyFiles
) -> None:
    """Whoever goes on showing it asks the database nothing, and a stream that rests on it waits for no database (AN6, GW5)."""
    here, there = processes
    asked = ServiceAccountAuthenticator(there, keys=keys, issuers=(ISSUER,), audiences=("api",))
    account, secret = await made(here, "serviceaccounts", "web"), await made(here, "secrets", "anchor")
    good, invented = token(keys, account, secret), token(keys, account, Reference("anchor", str(uuid4())))
    assert await asked.authenticate(good, now=time.time()) is not None
    with pytest.raises(Refused, match="has been made anew"):
        await asked.authenticate(invented, now=time.time())
    key = Key(SPACE, "", "secrets", NAMESPACE, "anchor")
    stored = await here.get(key)
    assert stored is not None
    await here.commit(Delete(key, stored.revision, orjson.loads(stored.data)))
    assert await there.get(key) is None
    before = there.questions
    for _ in range(20):
        for credentials in (good, invented):
            with pytest.raises(Refused, match="is gone"):
                await asked.authenticate(credentials, now=time.time())
    await made(here, "secrets", "anchor")
    assert await there.get(key) is not None
    for _ in range(20):
        for credentials in (good, invented):
            with pytest.raises(Refused, match="has been made anew"):
                await asked.authenticate(credentials, now=time.time())
    assert there.questions == before + 1
