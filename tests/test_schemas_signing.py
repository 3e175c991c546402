"""A signature is of these very bytes by a trusted key, or it is refused."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import IntegrityError, UsageError
from schemas.signing import (
    PAYLOAD_TYPE,
    PublicKey,
    SigningKey,
    make_signing_key,
    payload_of,
    read_public_key,
    require_signature,
    signature_path,
    write_signature,
)

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(32))


def changed(envelope: bytes, **fields: Any) -> bytes:
    """An envelope with other fields."""
    return json.dumps({**json.loads(envelope), **fields}).encode()


def signature_of(envelope: bytes) -> bytes:
    """The one signature in an envelope."""
    return base64.b64decode(json.loads(envelope)["signatures"][0]["sig"])


@given(st.binary(max_size=300))
def test_content_comes_back_as_signed(content: bytes) -> None:
    """By its own key, also among others; and the envelope is a function of content and key."""
    envelope = KEY.sign(content)

    assert payload_of(envelope, [OTHER.public, KEY.public], "manifest") == content
    assert envelope == KEY.sign(content) != OTHER.sign(content)


def test_key_of_the_rfc_gives_the_public_key_of_the_rfc() -> None:
    """RFC 8032, section 7.1, test 1."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")

    public = SigningKey(seed).public

    assert public.hex == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


@given(st.binary(max_size=100))
def test_signature_is_of_the_encoding_that_dsse_describes(content: bytes) -> None:
    """Other implementations of DSSE take our envelopes: written out here by the text of the protocol."""
    encoded = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(content), content)

    envelope = KEY.sign(content)

    Ed25519PublicKey.from_public_bytes(bytes.fromhex(KEY.public.hex)).verify(signature_of(envelope), encoded)
    assert json.loads(envelope).keys() == {"payload", "payloadType", "signatures"}


@given(content=st.binary(max_size=60), data=st.data())
def test_any_changed_byte_is_refused(content: bytes, data: st.DataObject) -> None:
    """Whoever edits the payload, or the signature, without the key: it does not hold."""
    envelope = KEY.sign(content)
    payload, signature = bytearray(content), bytearray(signature_of(envelope))
    payload[:0] = b"" if content else b"x"
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255)) if content else 0
    signature[data.draw(st.integers(0, 63))] ^= 1 << data.draw(st.integers(0, 7))

    for edited in (
        changed(envelope, payload=base64.b64encode(payload).decode()),
        changed(envelope, signatures=[{"keyid": "", "sig": base64.b64encode(signature).decode()}]),
        changed(envelope, signatures=[]),
        OTHER.sign(content),
    ):
        with pytest.raises(IntegrityError, match="no valid signature by a trusted key"):
            payload_of(edited, [KEY.public], "manifest")


def test_key_id_does_not_decide() -> None:
    """A forger may write any key id; only the signature counts."""
    forged = json.loads(OTHER.sign(b"{}"))
    forged["signatures"][0]["keyid"] = KEY.public.key_id

    with pytest.raises(IntegrityError, match="no valid signature"):
        payload_of(json.dumps(forged).encode(), [KEY.public], "manifest")


def test_nobody_trusted_means_nothing_valid() -> None:
    """An empty list of trusted keys trusts no one."""
    with pytest.raises(IntegrityError, match=r"trusted key \(none\)"):
        payload_of(KEY.sign(b"{}"), [], "manifest")


def test_signatures_beyond_counting_are_refused() -> None:
    """Checking is bounded, whatever an envelope holds."""
    envelope = json.loads(KEY.sign(b"{}"))
    envelope["signatures"] *= 17

    with pytest.raises(IntegrityError, match="17 signatures, at most 16"):
        payload_of(json.dumps(envelope).encode(), [KEY.public], "manifest")


def test_document_of_another_type_is_refused() -> None:
    """A signature over something else cannot be used here."""
    with pytest.raises(IntegrityError, match="another type of document"):
        payload_of(changed(KEY.sign(b"{}"), payloadType="text/plain"), [KEY.public], "manifest")


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"[]",
        b"3",
        b"{}",
        b"[" * 1_000_000,
        b'{"payload": 3, "payloadType": "", "signatures": []}',
        b'{"payload": "!", "payloadType": "", "signatures": []}',
        b'{"payload": "", "payloadType": "", "signatures": 3}',
        b'{"payload": "", "payloadType": "", "signatures": [3]}',
    ],
)
def test_what_is_no_envelope_is_refused_in_one_line(envelope: bytes) -> None:
    """Whatever lies there."""
    with pytest.raises(IntegrityError, match="manifest: ") as raised:
        payload_of(envelope, [KEY.public], "manifest")

    assert "\n" not in str(raised.value)


def test_file_is_tied_to_its_signature(tmp_path: Path) -> None:
    """Another content, another file's envelope, or none: refused, and the message names the file."""
    path = tmp_path / "manifest.json"
    write_signature(path, b"{}\n", KEY)

    require_signature(path, b"{}\n", [KEY.public])

    with pytest.raises(IntegrityError, match=r"manifest\.json: differs from what was signed"):
        require_signature(path, b"{ }\n", [KEY.public])
    with pytest.raises(IntegrityError, match=r"manifest\.json\.dsse: no valid signature"):
        require_signature(path, b"{}\n", [OTHER.public])
    os.truncate(signature_path(path), 10 << 30)
    with pytest.raises(IntegrityError, match="at most 1073741824 are read"):
        require_signature(path, b"{}\n", [KEY.public])
    signature_path(path).unlink()
    with pytest.raises(IntegrityError, match=r"manifest\.json\.dsse: no such file"):
        require_signature(path, b"{}\n", [KEY.public])


def test_public_keys_are_read_in_both_forms(tmp_path: Path) -> None:
    """PEM, as auditors have it, and hex."""
    (tmp_path / "key.pem").write_text(KEY.public.to_pem())
    (tmp_path / "key.hex").write_text(KEY.public.hex + "\n")

    assert read_public_key(tmp_path / "key.pem") == read_public_key(tmp_path / "key.hex") == KEY.public


def test_what_is_no_public_key_is_refused(tmp_path: Path) -> None:
    """Other keys, noise, and files that are not there."""
    other = generate_private_key(SECP256R1()).public_key()
    contents = {
        "curve": other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "noise": b"\xff" * 100,
        "upper": KEY.public.hex.upper().encode(),
        "empty": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)

    for name in [*contents, "absent"]:
        with pytest.raises(UsageError, match="Ed25519 public key"):
            read_public_key(tmp_path / name)


def test_secret_does_not_show(tmp_path: Path) -> None:
    """Neither in a repr nor in what is written; and two new keys differ."""
    one, two = make_signing_key(), make_signing_key()
    write_signature(tmp_path / "a", b"", one)

    assert one != two
    assert one.seed.hex() not in repr(one)
    assert repr(one.seed) not in repr(one)
    assert one.seed not in signature_path(tmp_path / "a").read_bytes()
    assert PublicKey(one.public.hex).key_id == one.public.key_id
