"""Authorities and certificates for tests, made by each run: nothing here is a secret."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.UTC)
HOSTS = ("localhost", "127.0.0.1")


def name(text: str) -> x509.Name:
    """A subject of one common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Identity:
    """A key with its certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...]

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return "".join(_pem(each) for each in (self.certificate, *self.authorities))

    def key_pem(self, password: str | None = None) -> str:
        how: KeySerializationEncryption = NoEncryption()
        if password is not None:
            how = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"node", self.key, self.certificate, list(self.authorities), encryption
        )


class Authority:
    """Issues certificates."""

    def __init__(self, text: str = "Test Authority", issuer: Authority | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.issuer = issuer
        builder = _builder(name(text), (issuer or self)._subject(text), self.key.public_key(), (-1, 3650))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign((issuer or self).key, hashes.SHA256())

    def _subject(self, text: str) -> x509.Name:
        return self.certificate.subject if hasattr(self, "certificate") else name(text)

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    def issue(
        self,
        subject: str | x509.Name,
        *,
        hosts: tuple[str, ...] = HOSTS,
        days: tuple[float, float] = (-1, 365),
        usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    ) -> Identity:
        """`days`: from when until when it is valid, from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        whole = name(subject) if isinstance(subject, str) else subject
        builder = _builder(whole, self.certificate.subject, key.public_key(), days)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False
            )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        authorities = () if self.issuer is None else (self.certificate,)
        return Identity(key, builder.sign(self.key, hashes.SHA256()), authorities)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: tuple[float, float]
) -> x509.CertificateBuilder:
    begin, end = (NOW + datetime.timedelta(days=each) for each in days)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def ssl_settings(
    directory: Path, authority: Authority, identity: Identity, prefix: str = "", *, client_auth: str = "none"
) -> dict[str, str]:
    """Settings of a listener over TLS with files in the directory."""
    directory.mkdir(exist_ok=True, parents=True)
    keys, trust = directory / "keys.pem", directory / "trust.pem"
    keys.write_text(identity.pem())
    trust.write_text(authority.pem)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.client.auth": client_auth,
    }
    return {prefix + each: value for each, value in settings.items()}
