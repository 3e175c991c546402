"""Laws of the built-in key provider: a principal opens what it was granted, as long as it is granted."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas import keys_local
from schemas.errors import AccessDeniedError, IntegrityError, UsageError
from schemas.keyrings import keyring_path, read_keyring
from schemas.keys import SCRATCH, KeyAdministration, KeyProvider, kek_of
from schemas.keys_local import LocalAdministration, LocalKeys

CODES = [f"d-{number:012x}" for number in range(6)]
# Which of six departments each of four principals may score.
POLICY = {"one": {0}, "two": {1, 2}, "three": {0, 3, 4}, "four": set(range(6))}
SHARD = {"build": "b-1", "shard": "s-1"}


def keys_of(folder: Path, principal: str) -> KeyProvider:
    """What a principal can do with a copy of its own keyring."""
    return LocalKeys(read_keyring(keyring_path(folder, principal)))


@pytest.fixture
def keys(tmp_path: Path) -> LocalAdministration:
    """Keys of all departments, granted by ``POLICY``."""
    administration = LocalAdministration(tmp_path / "keys", "owner")
    for code in CODES:
        administration.make_kek(kek_of(code, "text"))
    for principal, numbers in POLICY.items():
        administration.set_grants(principal, None, [kek_of(CODES[number], "text") for number in numbers])
    return administration


def test_every_principal_opens_just_what_it_was_granted(keys: LocalAdministration) -> None:
    """All pairs of four principals and six departments, in one process, in any order of use."""
    owner = keys_of(keys.folder, "owner")
    made = {code: owner.generate_data_key(kek_of(code, "text"), SHARD) for code in CODES}

    for principal, (number, code) in itertools.product(POLICY, enumerate(CODES)):
        provider = keys_of(keys.folder, principal)
        if number in POLICY[principal]:
            assert provider.decrypt(made[code].wrapped, SHARD) == made[code].plaintext
        else:
            with pytest.raises(AccessDeniedError, match="not granted to"):
                provider.decrypt(made[code].wrapped, SHARD)
            with pytest.raises(AccessDeniedError, match="not granted to"):
                provider.rewrap(made[code].wrapped, SHARD)
            with pytest.raises(AccessDeniedError, match="not granted to"):
                provider.generate_data_key(kek_of(code, "text"), SHARD)


def test_keyrings_hold_only_the_keys_of_their_grants(keys: LocalAdministration) -> None:
    """No byte of another department's key is in the file that a node gets."""
    everything = read_keyring(keyring_path(keys.folder, "owner")).keks

    for principal, numbers in POLICY.items():
        content = keyring_path(keys.folder, principal).read_text()
        for number, code in enumerate(CODES):
            assert (everything[kek_of(code, "text")][1] in content) == (number in numbers)


def test_data_keys_are_new_each_time_and_of_32_bytes(keys: LocalAdministration) -> None:
    """No two files share a key."""
    owner = keys_of(keys.folder, "owner")

    made = [owner.generate_data_key(kek_of(CODES[0], "text"), SHARD) for _ in range(20)]

    assert len({key.plaintext for key in made}) == 20
    assert {len(key.plaintext) for key in made} == {32}


def test_data_key_does_not_show_in_a_repr(keys: LocalAdministration) -> None:
    """What may come into a log by accident tells no key."""
    made = keys_of(keys.folder, "owner").generate_data_key(kek_of(CODES[0], "text"), SHARD)

    assert repr(made.plaintext) not in repr(made)
    assert made.plaintext.hex() not in repr(made)


def test_wrapped_key_is_bound_to_its_context_and_kek(keys: LocalAdministration) -> None:
    """The key of one shard is not taken for that of another, nor one department's for another's."""
    owner = keys_of(keys.folder, "owner")
    wrapped = owner.generate_data_key(kek_of(CODES[0], "text"), SHARD).wrapped

    with pytest.raises(IntegrityError, match="does not open"):
        owner.decrypt(wrapped, {**SHARD, "shard": "s-2"})
    with pytest.raises(IntegrityError, match="does not open"):
        owner.decrypt(wrapped.model_copy(update={"kek_id": kek_of(CODES[1], "text")}), SHARD)


def test_rotation_rewraps_and_retirement_shuts_old_copies_out(keys: LocalAdministration) -> None:
    """After a rotation both versions open; after retirement an old wrapping does not, a new one does."""
    kek_id = kek_of(CODES[0], "text")
    old = keys_of(keys.folder, "owner").generate_data_key(kek_id, SHARD)

    keys.rotate_keks([kek_id])
    holder = keys_of(keys.folder, "one")
    new = holder.rewrap(old.wrapped, SHARD)
    both = [holder.decrypt(wrapped, SHARD) for wrapped in (old.wrapped, new)]
    keys.retire_keks([kek_id])
    holder = keys_of(keys.folder, "one")

    assert both == [old.plaintext] * 2
    assert (old.wrapped.version, new.version) == (1, 2)
    assert holder.decrypt(new, SHARD) == old.plaintext
    with pytest.raises(AccessDeniedError, match="version 1 is not in the keyring"):
        holder.decrypt(old.wrapped, SHARD)


def test_revoked_principal_opens_nothing_made_or_rotated_afterwards(keys: LocalAdministration) -> None:
    """It keeps what it copied: its old keyring opens old wrappings, and no later ones."""
    kek_id = kek_of(CODES[0], "text")
    old = keys_of(keys.folder, "owner").generate_data_key(kek_id, SHARD)
    copy = keys_of(keys.folder, "one")

    keys.set_grants("one", None, [])
    keys.rotate_keks([kek_id])
    keys.retire_keks([kek_id])
    owner = LocalKeys(read_keyring(keyring_path(keys.folder, "owner")))
    later = owner.generate_data_key(kek_id, SHARD).wrapped

    assert copy.decrypt(old.wrapped, SHARD) == old.plaintext
    with pytest.raises(AccessDeniedError, match="version 2 is not in the keyring of one"):
        copy.decrypt(later, SHARD)
    with pytest.raises(AccessDeniedError, match="not granted to one"):
        keys_of(keys.folder, "one").decrypt(later, SHARD)


def test_a_rotation_writes_each_keyring_once(keys: LocalAdministration, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many KEKs get new versions, or lose old ones."""
    written: list[str] = []
    write = keys_local.write_keyring
    monkeypatch.setattr(
        keys_local, "write_keyring", lambda folder, ring: written.append(ring.principal) or write(folder, ring)
    )
    kek_ids = [kek_of(code, "text") for code in CODES]

    keys.rotate_keks(kek_ids)
    keys.retire_keks(kek_ids)

    assert max(written.count(name) for name in written) == 2
    assert written[0] == keys.principal


def test_making_a_kek_again_keeps_it(keys: LocalAdministration) -> None:
    """A second build finds the first one's keys."""
    before = read_keyring(keyring_path(keys.folder, "owner"))

    assert keys.make_kek(kek_of(CODES[0], "text")) is False
    assert keys.make_kek(SCRATCH) is True
    assert read_keyring(keyring_path(keys.folder, "owner")).keks.items() > before.keks.items()


def test_no_new_keys_are_made_where_the_administrators_are_lost(keys: LocalAdministration) -> None:
    """New keys under old ids would shut everybody out of what there is."""
    keyring_path(keys.folder, "owner").unlink()

    with pytest.raises(AccessDeniedError, match="absent, but 4 other keyrings are there"):
        keys.make_kek(kek_of(CODES[0], "text"))


def test_unknown_keys_and_the_administrators_own_grants_are_refused(keys: LocalAdministration) -> None:
    """A grant of what is not there, or to the holder of all, is a mistake."""
    with pytest.raises(UsageError, match="make it first"):
        keys.set_grants("one", None, [SCRATCH])
    with pytest.raises(UsageError, match="holds all"):
        keys.set_grants("owner", None, [])
    with pytest.raises(UsageError, match="no id of a KEK"):
        keys.make_kek("Cardiology")


def test_administrators_at_once_lose_no_key(tmp_path: Path) -> None:
    """Eight at a time make all keys, and each is there at the end."""
    administration: KeyAdministration = LocalAdministration(tmp_path / "keys", "owner")
    kek_ids = [kek_of(f"d-{number:012x}", "results") for number in range(24)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(administration.make_kek, kek_ids))

    assert all(made)
    assert set(read_keyring(tmp_path / "keys" / "owner.json").keks) == set(kek_ids)
