"""Signatures over manifests: only publishers whose key is trusted are believed.

Ed25519 (RFC 8032) over the manifest's canonical bytes without the signature; since the manifest
names every file's sha256, this covers the whole version. Needs the package `cryptography` (extra
`signatures`). Keys are PEM files: PKCS#8 private, SubjectPublicKeyInfo public.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from checkpoints.errors import SignatureError
from checkpoints.manifest import Manifest, Signature, signed_bytes


def make_key() -> tuple[bytes, bytes]:
    """A new private and public key, as PEM."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signer(private: Path) -> Callable[[Manifest], Manifest]:
    """Returns what adds a signature to a manifest; raises `SignatureError` for a file that is no such key."""
    try:
        key = load_pem_private_key(private.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise SignatureError(f"{private}: no private key in PEM: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{private}: not an Ed25519 key")
    name = key_id(key.public_key())

    def sign(manifest: Manifest) -> Manifest:
        value = base64.b64encode(key.sign(signed_bytes(manifest))).decode()
        return msgspec.structs.replace(manifest, signature=Signature(name, value))

    return sign


def checker(trusted: Iterable[Path]) -> Callable[[Manifest], None]:
    """Returns what raises `SignatureError` for manifests that none of the trusted public keys signed."""
    keys: dict[str, Ed25519PublicKey] = {}
    for path in trusted:
        try:
            key = load_pem_public_key(path.read_bytes())
        except ValueError as error:
            raise SignatureError(f"{path}: no public key in PEM: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise SignatureError(f"{path}: not an Ed25519 key")
        keys[key_id(key)] = key

    def check(manifest: Manifest) -> None:
        what = f"{manifest.model} version {manifest.version}"
        if manifest.signature is None:
            raise SignatureError(f"{what} is not signed, and only signed versions are accepted here")
        key = keys.get(manifest.signature.key)
        if key is None:
            raise SignatureError(f"{what} is signed by {manifest.signature.key}, who is not trusted here")
        try:
            key.verify(base64.b64decode(manifest.signature.value), signed_bytes(manifest))
        except (InvalidSignature, ValueError) as error:
            raise SignatureError(
                f"{what} was altered after it was signed by {manifest.signature.key}"
            ) from error

    return check


def key_id(key: Ed25519PublicKey) -> str:
    """The first 16 hex digits of the sha256 of the raw public key."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]
