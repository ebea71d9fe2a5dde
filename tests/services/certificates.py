"""Create TLS certificates for tests, by which servers and clients authenticate each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, and the files of both.

    :param content: the certificate
    :param key: its private key
    :param path: file of the certificate
    :param key_path: file of the key
    """

    content: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    path: Path
    key_path: Path


def make_authority(directory: Path, name: str) -> Certificate:
    """Make the certificate of an authority, which signs itself.

    :param directory: for its files, which every user may read
    :param name: its name
    """
    return _make(directory, name, None, ())


def make_certificate(directory: Path, name: str, authority: Certificate, *addresses: str) -> Certificate:
    """Make the certificate of a server or client.

    :param directory: for its files, which every user may read
    :param name: its name
    :param authority: signs it
    :param addresses: IP addresses that the server has
    """
    return _make(directory, name, authority, addresses)


def _make(directory: Path, name: str, authority: Certificate | None, addresses: tuple[str, ...]) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.content.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if addresses:
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address)) for address in addresses])
        builder = builder.add_extension(names, critical=False)
    content = builder.sign(authority.key if authority else key, hashes.SHA256())
    found = Certificate(content, key, directory / f"{name}.pem", directory / f"{name}.key")
    found.path.write_bytes(content.public_bytes(Encoding.PEM))
    found.key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return found
