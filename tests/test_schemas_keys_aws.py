"""Keys in AWS KMS: what every answer of the service means, which calls are made, and that nothing of them leaks."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from schemas.aws_kms import AwsSettings, Kms
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.keys import SCRATCH, WrappedKey, kek_of
from schemas.keys_aws import AwsKeys, alias_of, newest_alias
from schemas.keys_aws_admin import AwsAdministration, grant_name
from tests.answers import Answers, answering
from tests.aws import REGION, made_up_account, moto_kms

pytest.importorskip("boto3")

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/node"
TEXT, RESULTS = (kek_of("d-00000000000a", purpose) for purpose in ("text", "results"))
SHARD = {"build": "b-1", "shard": "s-1"}
READER = ["Decrypt", "DescribeKey"]
BUILDER = ["Decrypt", "DescribeKey", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo"]
WRAPPED = WrappedKey(kek_id=TEXT, version=1, ciphertext=base64.b64encode(b"wrapped").decode())


@dataclass(frozen=True)
class OverOneClient(Kms):
    """A connection over the client of another one, since a new client takes a quarter of a second."""

    owner: Kms

    @property
    def _client(self) -> Any:
        return self.owner._client


@dataclass(frozen=True)
class CutShort(OverOneClient):
    """A connection that breaks at one of its calls."""

    calls_left: list[int] = field(default_factory=list)

    def call(self, operation: str, *, where: str, absent: str | None = None, **parameters: Any) -> dict[str, Any]:
        """As the real one, until it breaks."""
        self.calls_left[0] -= 1
        if self.calls_left[0] < 0:
            raise TemporaryError("cut")
        return super().call(operation, where=where, absent=absent, **parameters)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kms]:
    """One account and client for all tests here; each has its own prefix."""
    with moto_kms(tmp_path_factory.mktemp("aws")):
        yield Kms(AwsSettings(region=REGION))


@pytest.fixture
def kms(moto: Kms, request: pytest.FixtureRequest) -> Kms:
    """A connection with a prefix of its own."""
    return OverOneClient(AwsSettings(region=REGION, prefix=request.node.name[:60]), moto)


@pytest.fixture(scope="module")
def server() -> Iterator[Answers]:
    """A server that refuses as it is told."""
    with answering() as answers:
        yield answers


@pytest.fixture(scope="module")
def refusing(server: Answers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsKeys]:
    """A provider that asks that server once."""
    with made_up_account(tmp_path_factory.mktemp("refusing")):
        yield AwsKeys(Kms(AwsSettings(region=REGION, endpoint_url=server.url, num_attempts=1)))


def refusal(code: str) -> bytes:
    """A failure as the service writes it, with a message that names what ours must not."""
    return json.dumps({"__type": code, "message": f"User: {ROLE} is not authorized on {ACCOUNT}"}).encode()


def grants_of(kms: Kms, kek_id: str, version: int) -> dict[str, tuple[str, list[str]]]:
    """Who was granted what on a version, by name of the grant."""
    key = kms.call("describe_key", where="test", KeyId=alias_of(kms.settings, kek_id, version))["KeyMetadata"]["KeyId"]
    grants = kms.call("list_grants", where="test", KeyId=key)["Grants"]
    return {grant["Name"]: (grant["GranteePrincipal"], sorted(grant["Operations"])) for grant in grants}


def state_of(kms: Kms, kek_id: str, version: int) -> str:
    """Whether a version is in use."""
    answer = kms.call("describe_key", where="test", KeyId=alias_of(kms.settings, kek_id, version))
    return str(answer["KeyMetadata"]["KeyState"])


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDeniedException", 400, AccessDeniedError),
        ("DisabledException", 400, AccessDeniedError),
        ("ExpiredTokenException", 400, AccessDeniedError),
        ("IncorrectKeyException", 400, IntegrityError),
        ("InvalidCiphertextException", 400, IntegrityError),
        ("InternalFailure", 500, TemporaryError),
        ("KMSInternalException", 500, TemporaryError),
        ("KMSInvalidStateException", 400, AccessDeniedError),
        ("KeyUnavailableException", 500, TemporaryError),
        ("LimitExceededException", 400, UsageError),
        ("NotFoundException", 400, AccessDeniedError),
        ("ThrottlingException", 400, TemporaryError),
        ("UnrecognizedClientException", 400, AccessDeniedError),
        (f"Odd of {ACCOUNT}", 503, TemporaryError),
        (f"Odd of {ACCOUNT}", 400, UsageError),
    ],
)
def test_every_refusal_of_the_service_has_one_meaning(
    server: Answers, refusing: AwsKeys, code: str, status: int, kind: type[PipelineError]
) -> None:
    """The code decides; the service's message, which names accounts and users, goes no further."""
    server.told = [(status, refusal(code))]

    with pytest.raises(kind, match=f"^key {TEXT}: ") as caught:
        refusing.decrypt(WRAPPED, SHARD)

    assert type(caught.value) is kind
    assert ACCOUNT not in str(caught.value)
    assert caught.value.__suppress_context__


def test_throttled_call_is_made_again(server: Answers, tmp_path: Path) -> None:
    """A short refusal does not end a build."""
    key = base64.b64encode(bytes(32)).decode()
    server.told = [(400, refusal("ThrottlingException")), (200, json.dumps({"Plaintext": key}).encode())]

    with made_up_account(tmp_path):
        provider = AwsKeys(Kms(AwsSettings(region=REGION, endpoint_url=server.url, num_attempts=2)))
        opened = provider.decrypt(WRAPPED, SHARD)

    assert opened == bytes(32)


def test_decrypt_tells_the_service_key_and_context(server: Answers, refusing: AwsKeys) -> None:
    """The service is never left to find the key that opens a wrapping by itself."""
    server.told = [(200, json.dumps({"Plaintext": base64.b64encode(bytes(32)).decode()}).encode())]

    refusing.decrypt(WRAPPED, SHARD)

    assert json.loads(server.asked[-1]) == {
        "KeyId": f"alias/exactppl/{TEXT}/v1",
        "CiphertextBlob": WRAPPED.ciphertext,
        "EncryptionContext": SHARD,
    }


def test_rewrap_tells_the_service_both_keys_and_contexts(server: Answers, refusing: AwsKeys) -> None:
    """KMS refuses a source key that is not the one of the wrapping, which moto does not check."""
    newest = {"KeyId": "key-2", "CiphertextBlob": base64.b64encode(b"rewrapped").decode()}
    described = {"KeyMetadata": {"KeyId": "key-2", "Description": f"exactppl/{TEXT}/v2"}}
    server.told = [(200, json.dumps(answer).encode()) for answer in (newest, described)]

    rewrapped = refusing.rewrap(WRAPPED, SHARD)

    assert json.loads(server.asked[-2]) == {
        "CiphertextBlob": WRAPPED.ciphertext,
        "SourceKeyId": f"alias/exactppl/{TEXT}/v1",
        "SourceEncryptionContext": SHARD,
        "DestinationKeyId": f"alias/exactppl/{TEXT}",
        "DestinationEncryptionContext": SHARD,
    }
    assert (rewrapped.version, base64.b64decode(rewrapped.ciphertext)) == (2, b"rewrapped")


def test_key_of_another_length_is_refused(server: Answers, refusing: AwsKeys) -> None:
    """What the service unwrapped must be a data key of ours."""
    server.told = [(200, json.dumps({"Plaintext": base64.b64encode(bytes(16)).decode()}).encode())]

    with pytest.raises(IntegrityError, match="has 16 bytes, not 32"):
        refusing.decrypt(WRAPPED, SHARD)


def test_lists_are_read_to_their_end(server: Answers, refusing: AwsKeys) -> None:
    """An account with more aliases than one answer holds is seen whole."""
    first = {"Aliases": [{"AliasName": "alias/a"}], "Truncated": True, "NextMarker": "next"}
    last = {"Aliases": [{"AliasName": "alias/b"}], "Truncated": False}
    server.told = [(200, json.dumps(answer).encode()) for answer in (first, last)]

    pages = refusing.kms.pages("list_aliases", where="aliases")

    assert [alias["AliasName"] for page in pages for alias in page["Aliases"]] == ["alias/a", "alias/b"]
    assert json.loads(server.asked[-1]) == {"Marker": "next"}


def test_service_out_of_reach_is_a_passing_failure(tmp_path: Path) -> None:
    """The same command can succeed later."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

    with made_up_account(tmp_path), pytest.raises(TemporaryError, match="cannot be reached"):
        AwsKeys(Kms(AwsSettings(region=REGION, endpoint_url=url, num_attempts=1))).decrypt(WRAPPED, SHARD)


def test_no_credentials_is_access_denied(tmp_path: Path) -> None:
    """A node that was given none is told so before anything is asked."""
    provider = AwsKeys(Kms(AwsSettings(region=REGION, endpoint_url="http://127.0.0.1:9")))

    with made_up_account(tmp_path) as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(AccessDeniedError, match="no credentials"):
            provider.decrypt(WRAPPED, SHARD)


def test_grants_are_exactly_those_that_are_meant(kms: Kms) -> None:
    """A principal gets what it lacks, loses what it should not have, and keeps the rest; others are left alone."""
    administration = AwsAdministration(kms, frozenset({"builder"}))
    for kek_id in (TEXT, RESULTS, SCRATCH):
        administration.make_kek(kek_id)
    reader, builder = (grant_name(principal, kms.settings.prefix) for principal in ("reader", "builder"))

    administration.set_grants("builder", f"{ROLE}-b", [TEXT, SCRATCH])
    administration.set_grants("reader", ROLE, [TEXT])
    first = [grants_of(kms, kek_id, 1) for kek_id in (TEXT, RESULTS, SCRATCH)]
    administration.set_grants("reader", ROLE, [RESULTS])
    second = [grants_of(kms, kek_id, 1) for kek_id in (TEXT, RESULTS, SCRATCH)]
    administration.set_grants("reader", f"{ROLE}-2", [RESULTS])

    assert first == [{builder: (f"{ROLE}-b", BUILDER), reader: (ROLE, READER)}, {}, {builder: (f"{ROLE}-b", BUILDER)}]
    assert second == [{builder: (f"{ROLE}-b", BUILDER)}, {reader: (ROLE, READER)}, {builder: (f"{ROLE}-b", BUILDER)}]
    assert grants_of(kms, RESULTS, 1) == {reader: (f"{ROLE}-2", READER)}


def test_setting_the_same_grants_again_changes_nothing(kms: Kms) -> None:
    """No moment in which a principal that keeps its grant has none."""
    administration = AwsAdministration(kms)
    administration.make_kek(TEXT)
    administration.set_grants("reader", ROLE, [TEXT])
    key = kms.call("describe_key", where="test", KeyId=newest_alias(kms.settings, TEXT))["KeyMetadata"]["KeyId"]
    before = kms.call("list_grants", where="test", KeyId=key)["Grants"]

    administration.set_grants("reader", ROLE, [TEXT])

    assert kms.call("list_grants", where="test", KeyId=key)["Grants"] == before


def test_grants_of_foreign_making_are_left_alone(kms: Kms) -> None:
    """What an account grants by other means is its own business."""
    administration = AwsAdministration(kms)
    administration.make_kek(TEXT)
    key = kms.call("describe_key", where="test", KeyId=newest_alias(kms.settings, TEXT))["KeyMetadata"]["KeyId"]
    kms.call("create_grant", where="test", KeyId=key, GranteePrincipal=ROLE, Operations=["Decrypt"], Name="other")

    administration.set_grants("reader", ROLE, [])
    administration.rotate_keks([TEXT])

    assert grants_of(kms, TEXT, 1) == {"other": (ROLE, ["Decrypt"])}
    assert grants_of(kms, TEXT, 2) == {}


def test_rotation_cut_short_anywhere_is_finished_by_the_next(moto: Kms, kms: Kms) -> None:
    """One new version, with all grants, and wrappings that open, at whichever call the first attempt broke."""
    administration, provider = AwsAdministration(kms), AwsKeys(kms)
    administration.make_kek(TEXT)
    administration.set_grants("reader", ROLE, [TEXT])
    first = provider.generate_data_key(TEXT, SHARD)
    num_calls, whole = 0, False

    while not whole:
        before = provider.rewrap(first.wrapped, SHARD)
        try:
            AwsAdministration(CutShort(kms.settings, moto, [num_calls])).rotate_keks([TEXT])
            whole = True
        except TemporaryError:
            administration.rotate_keks([TEXT])
        after = provider.rewrap(before, SHARD)

        assert after.version == before.version + 1 == num_calls + 2
        assert [provider.decrypt(wrapped, SHARD) for wrapped in (before, after)] == [first.plaintext] * 2
        assert list(grants_of(kms, TEXT, after.version).values()) == [(ROLE, READER)]
        num_calls += 1

    assert num_calls > 5


def test_retirement_disables_all_versions_but_the_newest(kms: Kms) -> None:
    """KMS refuses disabled keys (``DisabledException``), which moto does not do."""
    administration = AwsAdministration(kms)
    administration.make_kek(TEXT)
    administration.rotate_keks([TEXT])
    administration.rotate_keks([TEXT])

    administration.retire_keks([TEXT])
    administration.retire_keks([TEXT])

    assert [state_of(kms, TEXT, version) for version in (1, 2, 3)] == ["Disabled", "Disabled", "Enabled"]


def test_no_grant_is_made_on_a_retired_version(kms: Kms) -> None:
    """KMS would refuse it, and it would come to life if the key were enabled again."""
    administration = AwsAdministration(kms)
    administration.make_kek(TEXT)
    administration.rotate_keks([TEXT])
    administration.retire_keks([TEXT])

    administration.set_grants("reader", ROLE, [TEXT])

    assert [len(grants_of(kms, TEXT, version)) for version in (1, 2)] == [0, 1]


def test_corpora_of_one_account_share_no_keys(moto: Kms, kms: Kms) -> None:
    """Another prefix is another set of keys, also where one begins with the other."""
    inner = OverOneClient(kms.settings.model_copy(update={"prefix": f"{kms.settings.prefix}-2"}), moto)
    AwsAdministration(kms).make_kek(TEXT)
    AwsAdministration(inner).make_kek(TEXT)
    AwsAdministration(inner).set_grants("reader", ROLE, [TEXT])

    AwsAdministration(kms).set_grants("reader", ROLE, [])

    assert len(grants_of(inner, TEXT, 1)) == 1
    with pytest.raises((AccessDeniedError, IntegrityError)):
        AwsKeys(inner).decrypt(AwsKeys(kms).generate_data_key(TEXT, SHARD).wrapped, SHARD)


def test_alias_that_was_bent_to_another_key_is_refused(kms: Kms) -> None:
    """No data key is made under a key that is not the department's."""
    AwsAdministration(kms).make_kek(TEXT)
    AwsAdministration(kms).make_kek(RESULTS)
    other = kms.call("describe_key", where="test", KeyId=newest_alias(kms.settings, RESULTS))["KeyMetadata"]["KeyId"]
    kms.call("update_alias", where="test", AliasName=newest_alias(kms.settings, TEXT), TargetKeyId=other)

    with pytest.raises(IntegrityError, match="does not describe itself as a version of it"):
        AwsKeys(kms).generate_data_key(TEXT, SHARD)


def test_principal_without_an_arn_and_keys_that_are_not_there_are_refused(kms: Kms) -> None:
    """Nothing is granted, and nothing rotated, by a mistake."""
    administration = AwsAdministration(kms)
    administration.make_kek(TEXT)

    with pytest.raises(UsageError, match="give it a grantee"):
        administration.set_grants("reader", None, [TEXT])
    with pytest.raises(UsageError, match=f"1 keys are not there, such as key {SCRATCH}"):
        administration.set_grants("reader", ROLE, [TEXT, SCRATCH])
    with pytest.raises(UsageError, match="make it first"):
        administration.rotate_keks([SCRATCH])
    assert grants_of(kms, TEXT, 1) == {}


def test_debugging_output_of_boto3_shows_no_key(moto: Kms, caplog: pytest.LogCaptureFixture) -> None:
    """Its parser logs whole answers at level DEBUG, which would write keys into logs."""
    kms = Kms(moto.settings)
    AwsAdministration(kms).make_kek(TEXT)

    with caplog.at_level(logging.DEBUG):
        logging.getLogger("schemas").debug("seen")
        made = AwsKeys(kms).generate_data_key(TEXT, SHARD)

    assert "seen" in caplog.text
    assert base64.b64encode(made.plaintext).decode() not in caplog.text
    assert repr(made.plaintext) not in caplog.text


def test_connection_that_was_used_travels_without_its_client(moto: Kms) -> None:
    """Another process asks with credentials of its own."""
    kms = Kms(moto.settings)
    AwsAdministration(kms).make_kek(TEXT)
    made = AwsKeys(kms).generate_data_key(TEXT, SHARD)

    copy = pickle.loads(pickle.dumps(kms))

    assert copy == kms
    assert AwsKeys(copy).decrypt(made.wrapped, SHARD) == made.plaintext
