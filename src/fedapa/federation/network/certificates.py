"""Certificates and keys of a federation: its own authority, the server's certificate, rooms' keys.

The authority signs the server's certificate and nothing else; rooms get its certificate and refuse
any other server. A room has a key pair; the server knows rooms by their public keys.
"""

import base64
import datetime
import hashlib
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedapa.errors import DataError
from fedapa.files import aside

__all__ = [
    "fingerprint",
    "last_day",
    "make_certificates",
    "make_room_key",
    "read_public_key",
    "write_secret",
]

_YEARS = 10
"""A federation outlives the laptop that it was set up on; ``fedapa doctor`` tells the last day."""
_LOCAL = ("localhost", "127.0.0.1")


def make_certificates(folder: Path, name: str) -> None:
    """ca.crt, ca.key, server.crt and server.key for a server that rooms call ``name``."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedapa authority of {name}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    own = (
        _begun(issuer, issuer, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority, hashes.SHA384())
    )
    names = [_alternative(each) for each in dict.fromkeys((name, *_LOCAL))]
    signed = (
        _begun(subject, issuer, server)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA384())
    )
    for stem, key, certificate in (("ca", authority, own), ("server", server, signed)):
        write_secret(
            folder / f"{stem}.key",
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        with aside(folder / f"{stem}.crt") as partial:
            partial.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    # An hour back: clocks differ, and a new certificate is valid at once.
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def make_room_key(path: Path) -> str:
    """A room's private key at ``path`` and its public key beside it; the latter as one line."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_secret(path, private)
    with aside(path.with_suffix(".pub")) as partial:
        partial.write_bytes(public + b"\n")
    return public.decode()


def read_public_key(text: str, place: str) -> bytes:
    """A room's public key, from its one line, as the bytes that a room sends with every request."""
    try:
        key = serialization.load_ssh_public_key(text.strip().encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"{place}: is no public key ({error}); expected the file 'room.pub' that 'fedapa room "
            "init' wrote"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DataError(
            f"{place}: is a {type(key).__name__}; expected the elliptic-curve key that 'fedapa "
            "room init' wrote"
        )
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def fingerprint(public_key: bytes) -> str:
    """A short name for a public key, for logs and for people to compare."""
    content = hashlib.sha256(public_key).digest()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")[:22]


def last_day(path: Path) -> datetime.datetime:
    """Until when a certificate is valid."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except ValueError as error:
        raise DataError(f"{path}: is no certificate ({error}); make or copy it again") from error


def write_secret(path: Path, content: bytes) -> None:
    """Write what nobody else may read."""
    with aside(path) as partial:
        partial.chmod(0o600)
        partial.write_bytes(content)
