"""A certificate authority in a directory, and certificates of nodes that it signs (`ottla cluster up --secure`).

Keys are of the curve P-256: a handshake costs two thirds of one with RSA. Files with keys are for their owner alone,
and are replaced in one step: a node that looks for changes never reads a half.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.exits import FAILED, MISUSED, CommandFailed

if TYPE_CHECKING:
    from cryptography import x509

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca-key.pem"
CA_DAYS: Final = 3650
NODE_DAYS: Final = 397
"""What browsers and many validators accept at most."""
BACKDATED: Final = timedelta(hours=1)
"""Clocks of other machines may be slow."""
NODE_NAME: Final = "node"
"""Common name of all nodes: one super user, `User:CN=node`, for those that are added later too."""


@dataclass(frozen=True)
class Shown:
    """What a certificate says of itself."""

    where: str
    subject: str
    issuer: str
    names: tuple[str, ...]
    begins: datetime
    ends: datetime
    is_ca: bool

    def days_left(self, now: datetime) -> int:
        return (self.ends - now).days


def create(directory: Path, name: str) -> None:
    """A new authority; one that is there stays. Raises CommandFailed."""
    _library()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    for each in (directory.parent, directory):
        ensure_own(each)
    if (directory / CA_KEY_FILE).exists():
        return
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    write_private(directory / CA_KEY_FILE, _key_pem(key))
    write_private(directory / CA_FILE, _signed(builder, key), 0o644)


def ensure_own(directory: Path) -> None:
    """Raises CommandFailed for a directory in which others may have put, or may yet put, keys and passwords of theirs:
    in one that all share, such as /tmp, anybody can be there first."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise CommandFailed(f"{directory} belongs to another user: name a directory of your own", MISUSED)
    if found.st_mode & stat.S_IWOTH:
        raise CommandFailed(f"anybody may write in {directory}: chmod o-w it, or name another directory", MISUSED)


def issue(directory: Path, name: str, hosts: Sequence[str], days: int = NODE_DAYS) -> bytes:
    """A key and its certificate for these host names and addresses, as PEM. Raises CommandFailed."""
    _library()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, authority_key = _authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    days = min(days, max(1, (authority.not_valid_after_utc - datetime.now(UTC)).days))
    builder = (
        _builder(_name(name), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, dict.fromkeys(hosts)))), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    return _key_pem(key) + _signed(builder, authority_key)


def renew(directory: Path, file: Path, days: int = NODE_DAYS) -> Shown:
    """A new key and certificate in `file`, with the names that its certificate has. Raises CommandFailed."""
    before = shown_file(file)
    if not before:
        raise CommandFailed(f"{file} has no certificate", FAILED)
    name = before[0].subject.removeprefix("CN=")
    write_private(file, issue(directory, name, before[0].names, days))
    return shown_file(file)[0]


def own_names(hosts: Sequence[str]) -> list[str]:
    """Names by which a node on this machine is reached: those of its listeners, loopback, this host's."""
    with contextlib.suppress(OSError):
        hosts = [*hosts, socket.gethostname()]
    everywhere = ("", "0.0.0.0", "::")
    return list(dict.fromkeys(each for each in (*hosts, "localhost", "127.0.0.1", "::1") if each not in everywhere))


def shown_file(file: Path) -> list[Shown]:
    """The certificates in a PEM file. Raises CommandFailed."""
    _library()
    from cryptography import x509

    try:
        data = file.read_bytes()
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}", FAILED) from None
    if b"-----BEGIN CERTIFICATE-----" not in data:
        return []
    try:
        return [_shown(str(file), each) for each in x509.load_pem_x509_certificates(data)]
    except ValueError as error:
        raise CommandFailed(f"{file} has a certificate that cannot be read: {error}", FAILED) from None


def shown_der(where: str, data: bytes) -> Shown:
    """Raises CommandFailed."""
    _library()
    from cryptography import x509

    try:
        return _shown(where, x509.load_der_x509_certificate(data))
    except ValueError as error:
        raise CommandFailed(f"{where} has a certificate that cannot be read: {error}", FAILED) from None


def write_private(file: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step; nobody else may read it, at no moment."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _shown(where: str, certificate: x509.Certificate) -> Shown:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(each) for kind in (x509.DNSName, x509.IPAddress) for each in found.get_values_for_type(kind))
    except x509.ExtensionNotFound:
        names = ()
    try:
        is_ca = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_ca = False
    return Shown(
        where,
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        names,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        is_ca,
    )


def _authority(directory: Path) -> tuple[x509.Certificate, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
        return certificate, load_pem_private_key((directory / CA_KEY_FILE).read_bytes(), None)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandFailed(f"the certificate authority in {directory} cannot be used: {why}", FAILED) from None


def _library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CommandFailed("cryptography is not installed\n  install it with: pip install 'ottla[security]'") from None


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: Any, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
