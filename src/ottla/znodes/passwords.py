"""Passwords among the settings of a broker, as `PasswordEncoder` encrypts them: a key by PBKDF2 from
`password.encoder.secret`, then AES.

A value says all but the secret: `keyLength:128,salt:...,iterations:4096,...`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Final

from ottla.config.secret import Secret, revealed
from ottla.errors import OttlaError

ITERATIONS: Final = 4096
KEY_BITS: Final = 128
SALT_BYTES: Final = 256
IV_BYTES: Final = 16
ITERATIONS_MAX: Final = 10_000_000
"""Some seconds of work; a damaged znode may ask for any number."""

_FIELDS: Final = frozenset({"keyFactoryAlgorithm", "cipherAlgorithm", "keyLength", "salt", "iterations"})
_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_DIGESTS: Final = {
    "PBKDF2WithHmacSHA1": "sha1", "PBKDF2WithHmacSHA224": "sha224", "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384", "PBKDF2WithHmacSHA512": "sha512",
}  # fmt: skip
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_BLOCK_BITS: Final = 128


class WrongSecret(OttlaError):
    """No secret that was given opens an encrypted password."""


def is_encrypted(value: str) -> bool:
    """Whether a setting's value is an encrypted password."""
    return _parsed(revealed(value)).keys() >= _FIELDS


def _parsed(value: str) -> dict[str, str]:
    found = {}
    for part in value.split(","):
        name, colon, text = part.partition(":")
        if colon:
            found[name.strip()] = text.strip()
    return found


def decrypted(value: str, secrets: Sequence[str]) -> Secret:
    """The password, by the first of the secrets that opens it. Raises WrongSecret, OttlaError for what is damaged."""
    fields = _parsed(revealed(value))
    try:
        salt, iv, data = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        iterations, bits, length = (int(fields[name]) for name in ("iterations", "keyLength", "passwordLength"))
        digest, cipher = _DIGESTS[fields["keyFactoryAlgorithm"]], fields["cipherAlgorithm"]
        if not 0 < iterations <= ITERATIONS_MAX or bits not in (128, 192, 256) or cipher not in (_CBC, _GCM):
            raise ValueError
    except (KeyError, ValueError, binascii.Error):
        raise OttlaError("an encrypted password is damaged, or encrypted in a way that is not known") from None
    for secret in secrets:
        key = hashlib.pbkdf2_hmac(digest, revealed(secret).encode(), salt, iterations, bits // 8)
        found = _opened(cipher, key, iv, data)
        if found is not None and _java_length(found) == length:
            return Secret(found)
    raise WrongSecret("none of the secrets opens the password")


def _opened(cipher: str, key: bytes, iv: bytes, data: bytes) -> str | None:
    from cryptography.exceptions import InvalidTag  # of the extra `security`
    from cryptography.hazmat.primitives import padding
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        if cipher == _GCM:
            return AESGCM(key).decrypt(iv, data, None).decode()
        plain = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
        unpadder = padding.PKCS7(_BLOCK_BITS).unpadder()
        return (unpadder.update(plain.update(data) + plain.finalize()) + unpadder.finalize()).decode()
    except (ValueError, InvalidTag):
        return None


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def encrypted(password: str, secret: str, salt: bytes, iv: bytes) -> str:
    """A password as a broker encrypts it by default. `salt` and `iv` are random and new."""
    from cryptography.hazmat.primitives import padding
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    text = revealed(password)
    key = hashlib.pbkdf2_hmac(_DIGESTS[_KEY_FACTORY], revealed(secret).encode(), salt, ITERATIONS, KEY_BITS // 8)
    padder = padding.PKCS7(_BLOCK_BITS).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    padded = padder.update(text.encode()) + padder.finalize()
    fields = {
        "keyFactoryAlgorithm": _KEY_FACTORY,
        "cipherAlgorithm": _CBC,
        "keyLength": str(KEY_BITS),
        "salt": base64.b64encode(salt).decode(),
        "iterations": str(ITERATIONS),
        "encryptedPassword": base64.b64encode(encryptor.update(padded) + encryptor.finalize()).decode(),
        "initializationVector": base64.b64encode(iv).decode(),
        "passwordLength": str(_java_length(text)),
    }
    return ",".join(f"{name}:{value}" for name, value in fields.items())
