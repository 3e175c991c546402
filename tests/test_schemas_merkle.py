"""Laws of Merkle proofs, and the published hashes of RFC 6962's test tree."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.merkle import merkle_proofs, merkle_root, proves

# Leaves and roots of the reference implementation of Certificate Transparency (its public Merkle tree test vectors).
VECTOR_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
VECTOR_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
lists = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


@pytest.mark.parametrize("count", range(1, 9))
def test_roots_are_those_that_were_published(count: int) -> None:
    """So that anyone's verifier of such trees can check ours."""
    assert merkle_root(VECTOR_LEAVES[:count]) == VECTOR_ROOTS[count - 1]


def test_root_of_nothing_is_the_hash_of_nothing() -> None:
    """As the RFC has it."""
    assert merkle_root([]) == hashlib.sha256(b"").hexdigest()


@given(lists)
def test_each_leaf_is_proved_at_its_place(leaves: list[bytes]) -> None:
    """For any number of leaves, by no more hashes than the tree is high."""
    root = merkle_root(leaves)

    for index, leaf in enumerate(leaves):
        proof = merkle_proofs(leaves)[index]
        assert proves(leaf, index, len(leaves), proof=proof, root=root)
        assert len(proof) <= (len(leaves) - 1).bit_length()


@given(lists, st.data())
def test_nothing_else_is_proved(leaves: list[bytes], data: st.DataObject) -> None:
    """Another leaf, place, hash, root, a shorter or longer proof: none holds."""
    root, index = merkle_root(leaves), data.draw(st.integers(0, len(leaves) - 1))
    leaf, proof = leaves[index], merkle_proofs(leaves)[index]
    changed = bytearray(leaf + b"\0")
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    place = data.draw(st.integers(-2, len(leaves) + 2))

    assert not proves(bytes(changed), index, len(leaves), proof=proof, root=root)
    assert not proves(leaf, index, len(leaves), proof=proof, root=root[::-1]) or root == root[::-1]
    assert not proves(leaf, index, len(leaves), proof=proof, root="é")
    assert not proves(leaf, index, len(leaves), proof=[*proof, root], root=root)
    if not 0 <= place < len(leaves) or leaves[place] != leaf:
        assert not proves(leaf, place, len(leaves), proof=proof, root=root)
    if proof:
        cut = data.draw(st.integers(0, len(proof) - 1))
        assert not proves(leaf, index, len(leaves), proof=proof[:cut], root=root)
        other = [part if number != cut else "00" * 32 for number, part in enumerate(proof)]
        assert not proves(leaf, index, len(leaves), proof=other, root=root)
        for damage in ("", "zz" * 32, "00" * 31, "é", " ".join([proof[cut][:32], proof[cut][32:]]), proof[cut] + "\n"):
            damaged = [part if number != cut else damage for number, part in enumerate(proof)]
            assert not proves(leaf, index, len(leaves), proof=damaged, root=root)


@given(st.lists(st.binary(max_size=8), min_size=2, max_size=2))
def test_node_is_not_taken_for_a_leaf(leaves: list[bytes]) -> None:
    """The hashes of two leaves, one after the other, make no leaf with the same root."""
    inner = b"".join(hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves)

    assert not proves(inner, 0, 1, proof=[], root=merkle_root(leaves))
    assert merkle_root([inner]) != merkle_root(leaves)
