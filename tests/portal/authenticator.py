"""A device with passkeys, as a browser speaks for it: made of keys and CBOR, without a browser."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


class Authenticator:
    """One passkey, for one site. What it says can be bent, as an attacker would."""

    def __init__(self, origin: str = "http://testserver", host: str = "testserver", *, verifies: bool = True) -> None:
        self.origin, self.host = origin, host
        self.flags = PRESENT | (VERIFIED if verifies else 0)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.credential_id = secrets.token_bytes(32)
        self.user_handle = b""
        self.counter = 0

    @property
    def attested(self) -> bytes:
        """What a site keeps of it."""
        key = cbor.encode(dict(ES256.from_cryptography_key(self.key.public_key())))
        return bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id + key

    def make(self, options: dict[str, Any]) -> str:
        """The answer to what a page offers."""
        self.user_handle = websafe_decode(options["user"]["id"])
        data = self._data(self.flags | ATTESTED) + self.attested
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", options["challenge"])
        return self._answer({"clientDataJSON": client, "attestationObject": attestation})

    def use(self, options: dict[str, Any]) -> str:
        """The answer to what a page asks to be signed."""
        self.counter += 1
        data = self._data(self.flags)
        client = self._client("webauthn.get", options["challenge"])
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        said = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        return self._answer({**said, "userHandle": self.user_handle} if self.user_handle else said)

    def _data(self, flags: int) -> bytes:
        return hashlib.sha256(self.host.encode()).digest() + bytes([flags]) + self.counter.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str) -> bytes:
        said = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return json.dumps(said).encode()

    def _answer(self, response: dict[str, bytes]) -> str:
        raw = websafe_encode(self.credential_id)
        named = {name: websafe_encode(value) for name, value in response.items()}
        return json.dumps({"id": raw, "rawId": raw, "type": "public-key", "response": named})
