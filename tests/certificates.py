"""An authority and certificates of its own for tests of TLS on this machine."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pem:
    """Three PEM files."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(folder: Path, *, password: bytes | None = None) -> Pem:
    """A new authority, and a certificate of it that is good for a day on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, own_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _signed(_name("authority"), own=authority_key, signer=_name("authority"), signer_key=authority_key)
    own = _signed(_name("node"), own=own_key, signer=_name("authority"), signer_key=authority_key)
    secret = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = Pem(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    pem.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    pem.cert.write_bytes(own.public_bytes(serialization.Encoding.PEM))
    pem.key.write_bytes(own_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    return pem


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(
    subject: x509.Name,
    *,
    own: ec.EllipticCurvePrivateKey,
    signer: x509.Name,
    signer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    is_authority = subject == signer
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
    )
    return builder.sign(signer_key, hashes.SHA256())
