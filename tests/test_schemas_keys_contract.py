"""Laws that every key provider keeps, over all three of them.

Keyrings are the real thing. AWS KMS is moto, in this process: it checks contexts, ciphertexts and the key of Decrypt,
but neither the source key of ReEncrypt, nor grants, nor whether a key is disabled. Laws about those do not run over it;
``test_schemas_keys_aws.py`` shows that the calls are the right ones. Vault is a stand-in that enforces policies and
versions.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.errors import AccessDeniedError, IntegrityError, PipelineError
from schemas.keys import SCRATCH, DataKey, WrappedKey, kek_of
from tests.key_services import ENFORCING, OWNER, SERVICES, Service

CODES = [f"d-{number:012x}" for number in range(6)]
TEXT, OTHER = (kek_of(code, "text") for code in CODES[:2])
# Which of six departments each of four principals may score.
POLICY = {"one": {0}, "two": {1, 2}, "three": {0, 3, 4}, "four": set(range(6))}
SHARD = {"build": "b-1", "shard": "s-1"}

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_./", min_size=1, max_size=20)
CONTEXTS = st.dictionaries(WORDS, WORDS, min_size=1, max_size=4)
FEW = settings(max_examples=10)
enforced = pytest.mark.parametrize("service", ENFORCING, indirect=True, scope="module")


@pytest.fixture(scope="module", params=list(SERVICES))
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the KEKs of two departments, and no grants."""
    with SERVICES[request.param](tmp_path_factory.mktemp(request.param)) as service:
        for kek_id in (TEXT, OTHER):
            service.administration.make_kek(kek_id)
        yield service


def secrets_of(service: Service, made: DataKey) -> tuple[str, ...]:
    """A data key in every form in which it could be written, and the secrets of the service."""
    key = made.plaintext
    return (key.hex(), base64.b64encode(key).decode(), repr(key)[2:-1], *service.secrets)


@FEW
@given(context=CONTEXTS)
def test_what_was_wrapped_opens_in_its_context(service: Service, context: dict[str, str]) -> None:
    """A data key has 32 bytes, and its wrapping can be stored and opened, whatever the order of the context."""
    keys = service.keys_of(OWNER)

    made = keys.generate_data_key(TEXT, context)
    stored = WrappedKey.model_validate_json(made.wrapped.model_dump_json())

    assert len(made.plaintext) == 32
    assert made.wrapped.kek_id == TEXT
    assert keys.decrypt(stored, dict(reversed(context.items()))) == made.plaintext


@FEW
@given(context=CONTEXTS, other=st.just({}) | CONTEXTS)
def test_another_context_is_refused(service: Service, context: dict[str, str], other: dict[str, str]) -> None:
    """The key of one shard is not taken for that of another, neither opened nor rewrapped."""
    assume(context != other)
    keys = service.keys_of(OWNER)
    made = keys.generate_data_key(TEXT, context)

    for use in (keys.decrypt, keys.rewrap):
        with pytest.raises(IntegrityError, match="does not open") as caught:
            use(made.wrapped, other)

        assert not any(secret in str(caught.value) for secret in secrets_of(service, made))


def test_another_kek_is_refused(service: Service) -> None:
    """A wrapping is not taken for one of another department; moto calls that access denied, KMS an incorrect key."""
    keys = service.keys_of(OWNER)
    made = keys.generate_data_key(TEXT, SHARD)

    with pytest.raises((IntegrityError, AccessDeniedError), match=f"^key {OTHER}: ") as caught:
        keys.decrypt(made.wrapped.model_copy(update={"kek_id": OTHER}), SHARD)

    assert not any(secret in str(caught.value) for secret in secrets_of(service, made))


@enforced
def test_another_kek_is_refused_as_damage_for_rewrapping_too(service: Service) -> None:
    """Moto rewraps whatever KEK is named as the source, so this law does not run over it."""
    keys = service.keys_of(OWNER)
    moved = keys.generate_data_key(TEXT, SHARD).wrapped.model_copy(update={"kek_id": OTHER})

    for use in (keys.decrypt, keys.rewrap):
        with pytest.raises(IntegrityError, match="does not open"):
            use(moved, SHARD)


@FEW
@given(data=st.data())
def test_changed_wrapping_is_refused_and_shows_no_key(service: Service, data: st.DataObject) -> None:
    """Any one character; the last four are left out, since base64 may have bits there that mean nothing."""
    keys = service.keys_of(OWNER)
    made = keys.generate_data_key(TEXT, SHARD)
    text = made.wrapped.ciphertext
    place = data.draw(st.integers(0, len(text) - 5))
    character = data.draw(st.sampled_from("ABCDEFGHabcdefgh01234567+/").filter(lambda other: other != text[place]))
    changed = f"{text[:place]}{character}{text[place + 1 :]}"

    with pytest.raises((IntegrityError, AccessDeniedError)) as caught:
        keys.decrypt(made.wrapped.model_copy(update={"ciphertext": changed}), SHARD)

    assert not any(secret in str(caught.value) for secret in secrets_of(service, made))


def test_data_keys_are_new_each_time(service: Service) -> None:
    """No two files share a key, also in the same context."""
    keys = service.keys_of(OWNER)

    made = [keys.generate_data_key(TEXT, SHARD) for _ in range(10)]

    assert len({key.plaintext for key in made}) == 10
    assert len({key.wrapped.ciphertext for key in made}) == 10


def test_no_key_shows_in_a_repr(service: Service) -> None:
    """What may come into a log by accident tells no key and no token."""
    keys = service.keys_of(OWNER)
    made = keys.generate_data_key(TEXT, SHARD)

    shown = repr((made, keys, service.administration))

    assert TEXT in shown
    assert not any(secret in shown for secret in secrets_of(service, made))


def test_making_a_kek_again_keeps_it(service: Service) -> None:
    """A second build finds the first one's keys."""
    keys = service.keys_of(OWNER)
    made = keys.generate_data_key(TEXT, SHARD)

    assert service.administration.make_kek(TEXT) is False
    assert keys.decrypt(made.wrapped, SHARD) == made.plaintext


def test_after_a_rotation_old_wrappings_open_and_rewrapped_ones_too(service: Service) -> None:
    """Rewrapping changes the version and not the data key; what is made afterwards has the new version."""
    kek_id = kek_of(CODES[0], "results")
    service.administration.make_kek(kek_id)
    old = service.keys_of(OWNER).generate_data_key(kek_id, SHARD)

    service.administration.rotate_keks([kek_id])
    keys = service.keys_of(OWNER)
    new, later = keys.rewrap(old.wrapped, SHARD), keys.generate_data_key(kek_id, SHARD)

    assert [old.wrapped.version, new.version, later.wrapped.version] == [1, 2, 2]
    assert [keys.decrypt(wrapped, SHARD) for wrapped in (old.wrapped, new)] == [old.plaintext] * 2
    assert keys.decrypt(later.wrapped, SHARD) == later.plaintext


@enforced
def test_after_retirement_only_the_newest_version_opens(service: Service) -> None:
    """Old copies are shut out, for rewrapping too, and for whoever has every right; a second time changes nothing."""
    kek_id = kek_of(CODES[1], "results")
    service.administration.make_kek(kek_id)
    old = service.keys_of(OWNER).generate_data_key(kek_id, SHARD)
    service.administration.rotate_keks([kek_id])
    new = service.keys_of(OWNER).rewrap(old.wrapped, SHARD)

    for _ in range(2):
        service.administration.retire_keks([kek_id])
    keys = service.keys_of(OWNER)

    assert keys.decrypt(new, SHARD) == old.plaintext
    for use in (keys.decrypt, keys.rewrap):
        with pytest.raises(AccessDeniedError) as caught:
            use(old.wrapped, SHARD)
        assert not any(secret in str(caught.value) for secret in secrets_of(service, old))


@enforced
def test_every_principal_opens_just_what_it_was_granted(service: Service) -> None:
    """All pairs of four principals and six departments."""
    for code in CODES:
        service.administration.make_kek(kek_of(code, "text"))
    owner = service.keys_of(OWNER)
    made = {code: owner.generate_data_key(kek_of(code, "text"), SHARD) for code in CODES}
    for principal, numbers in POLICY.items():
        service.grant(principal, [kek_of(CODES[number], "text") for number in sorted(numbers)])

    for principal, (number, code) in itertools.product(POLICY, enumerate(CODES)):
        keys = service.keys_of(principal)
        if number in POLICY[principal]:
            assert keys.decrypt(made[code].wrapped, SHARD) == made[code].plaintext
            continue
        for use in (
            partial(keys.decrypt, made[code].wrapped, SHARD),
            partial(keys.rewrap, made[code].wrapped, SHARD),
            partial(keys.generate_data_key, kek_of(code, "text"), SHARD),
        ):
            with pytest.raises(AccessDeniedError, match=f"^key {code}/text: ") as caught:
                use()
            assert not any(secret in str(caught.value) for secret in secrets_of(service, made[code]))


@enforced
def test_grants_hold_for_versions_to_come_and_end_when_they_are_taken(service: Service) -> None:
    """A rotation shuts nobody out; a revocation does, and leaves other principals alone."""
    service.administration.make_kek(SCRATCH)
    for principal in ("one", "two"):
        service.grant(principal, [SCRATCH])

    service.administration.rotate_keks([SCRATCH])
    made = service.keys_of(OWNER).generate_data_key(SCRATCH, SHARD)
    both = [service.keys_of(principal).decrypt(made.wrapped, SHARD) for principal in ("one", "two")]
    service.grant("one", [])

    assert both == [made.plaintext] * 2
    assert service.keys_of("two").decrypt(made.wrapped, SHARD) == made.plaintext
    with pytest.raises(AccessDeniedError):
        service.keys_of("one").decrypt(made.wrapped, SHARD)


def test_unknown_kek_is_refused(service: Service) -> None:
    """A key that was never made opens nothing and makes nothing."""
    keys = service.keys_of(OWNER)
    unknown = kek_of(CODES[5], "results")
    made = keys.generate_data_key(TEXT, SHARD)

    with pytest.raises(PipelineError, match=f"^key {unknown}: "):
        keys.generate_data_key(unknown, SHARD)
    with pytest.raises(PipelineError, match=f"^key {unknown}: "):
        keys.decrypt(made.wrapped.model_copy(update={"kek_id": unknown}), SHARD)
