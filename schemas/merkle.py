"""Merkle tree hashes, by which an entry is proved to be one of a list without showing the others.

The tree of RFC 6962 (section 2.1; RFC 9162, section 2.1): SHA-256, a leaf is hashed behind a byte 0 and a node behind a
byte 1, so that no node can be passed off as a leaf.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


def merkle_root(leaves: Sequence[bytes]) -> str:
    """The hex hash of a list; that of no leaves is the SHA-256 of nothing."""
    return _root([_leaf(leaf) for leaf in leaves]).hex()


def merkle_proofs(leaves: Sequence[bytes]) -> list[list[str]]:
    """For each leaf, the hex hashes of the neighbours on its way to the root, nearest first (RFC 9162, 2.1.3.1)."""
    _, paths = _paths([_leaf(leaf) for leaf in leaves])
    return [[part.hex() for part in path] for path in paths]


def proves(leaf: bytes, index: int, num_leaves: int, *, proof: Sequence[str], root: str) -> bool:
    """Whether a leaf is at this place of a list with this root (RFC 9162, 2.1.3.2); false also for what is no proof.

    A proof does not bind ``num_leaves``: one of 3 leaves can hold for 4. It has to come from whoever vouches for the
    root, never from whoever shows the proof.
    """
    if not 0 <= index < num_leaves:
        return False
    place, last, found = index, num_leaves - 1, _leaf(leaf)
    for part in map(_bytes_of, proof):
        if part is None or last == 0:
            return False
        if place & 1 or place == last:
            found = _node(part, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = _node(found, part)
        place, last = place >> 1, last >> 1
    return last == 0 and found.hex() == root


def _leaf(content: bytes) -> bytes:
    return hashlib.sha256(b"\0" + content).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _root(hashes: Sequence[bytes]) -> bytes:
    if not hashes:
        return hashlib.sha256().digest()
    if len(hashes) == 1:
        return hashes[0]
    half = _half(len(hashes))
    return _node(_root(hashes[:half]), _root(hashes[half:]))


def _paths(hashes: Sequence[bytes]) -> tuple[bytes, list[list[bytes]]]:
    """The root, and the way of each leaf."""
    if len(hashes) <= 1:
        return _root(hashes), [[] for _ in hashes]
    half = _half(len(hashes))
    (left, lefts), (right, rights) = _paths(hashes[:half]), _paths(hashes[half:])
    return _node(left, right), [[*path, right] for path in lefts] + [[*path, left] for path in rights]


def _half(count: int) -> int:
    """The largest power of two below the count."""
    return 1 << (count - 1).bit_length() - 1


def _bytes_of(text: str) -> bytes | None:
    return bytes.fromhex(text) if isinstance(text, str) and _HEX_DIGEST.fullmatch(text) else None
