"""``python -m sharding keys``: who may open what, made, changed and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.access_options import FOLDER, named_keyring
from schemas.console import NamedPath, emit, notice, output_options

if TYPE_CHECKING:
    from schemas.access import KeySource
    from schemas.keyrings import Keyring
    from schemas.policy import Policy

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
EXISTING_FILE = NamedPath(exists=True, dir_okay=False, path_type=Path)
RIGHTS = ("aggregate", "build", "administer")


@click.group()
def keys() -> None:
    """Make, grant, revoke, rotate and list the keys of a corpus; a department is named by name or code."""


def administrator(command: CommandT) -> CommandT:
    """Add the corpus and the administrator's keyring."""
    for option in (
        output_options,
        click.option("--keyring", type=FOLDER, envvar="PPL_KEYRING", help="Folder of all keyrings. [PPL_KEYRING]"),
        click.option("--principal", envvar="PPL_PRINCIPAL", help="Who administers: owner. [PPL_PRINCIPAL]"),
        click.argument("corpus", type=FOLDER),
    ):
        command = option(command)
    return command


@keys.command()
@administrator
@click.option("--policy", type=EXISTING_FILE, help="TOML file of who may do what; else the principal may do all.")
@click.option("--service", type=EXISTING_FILE, help="TOML file with [aws] or [vault]: where keys are to be.")
def init(corpus: Path, *, policy: Path | None, service: Path | None, **options: Any) -> None:
    """Make the keyrings of a corpus before its first build; what is there already is left as it is."""
    from schemas.services import read_service
    from sharding.corpus_keys import ready_keys
    from sharding.identity import corpus_key_path, load_key, make_key

    source = _begin(corpus, options)
    path = corpus_key_path(corpus.absolute())
    make_key(path)
    ready_keys(
        corpus.absolute(),
        source,
        policy.absolute() if policy else None,
        load_key(path),
        service=read_service(service) if service else None,
    )
    _show(corpus, source, "initialised", options)


@keys.command()
@administrator
@click.argument("grantee")
@click.option("--score", multiple=True, metavar="DEPARTMENT", help="May read these notes, again for each; * for all.")
@click.option("--aggregate", is_flag=True, help="May read the losses of all departments, and no note.")
@click.option("--build", is_flag=True, help="May write builds, and thus read all notes.")
@click.option("--administer", is_flag=True, help="May administer keys, and thus use all of them.")
@click.option("--name-at-service", metavar="NAME", help="The key service's name of the principal, such as an ARN.")
def grant(corpus: Path, *, grantee: str, score: tuple[str, ...], name_at_service: str | None, **options: Any) -> None:
    """Let a principal do more, and write its keyring: FOLDER/GRANTEE.json, for that principal alone."""
    from schemas.granting import carry_out, codes_of, one_administrator, read_corpus_policy, require_administrator
    from schemas.policy import EVERY, Grant

    source = _begin(corpus, options)
    scored = _codes(corpus, score)
    with one_administrator(source):
        policy = read_corpus_policy(corpus, source.open())
        require_administrator(policy, source.principal)
        before = policy.principals.get(grantee, Grant())
        rights = {name: getattr(before, name) or options[name] for name in RIGHTS}
        scores = (*before.score, *scored)
        after = Grant(score=scores, grantee=name_at_service or before.grantee, **rights)
        codes = codes_of(corpus, source)
        for code in sorted(set(scored) - {EVERY, *codes, *before.score}):
            notice(f"department {code}: nothing has it yet; if its name was misspelt: keys revoke {grantee} --score …")
        carry_out(corpus, source, _with(policy, grantee, after), codes)
    _show(corpus, source, "granted", options)


@keys.command()
@administrator
@click.argument("grantee")
@click.option("--score", multiple=True, metavar="DEPARTMENT", help="No longer these notes; everything when absent.")
def revoke(corpus: Path, *, grantee: str, score: tuple[str, ...], **options: Any) -> None:
    """Take a grant back, and give what it opened new keys for all builds to come.

    Whoever was revoked may have kept a copy of its keyring: with one of the shards it opens earlier builds until
    ``keys rotate`` has wrapped their keys anew, and copies of those for ever.
    """
    from schemas.audit_logs import corpus_log
    from schemas.custody import require_keyrings
    from schemas.granting import (
        administration_for,
        carry_out,
        codes_of,
        one_administrator,
        read_corpus_policy,
        require_administrator,
    )
    from schemas.rotation import step_on, without

    source = _begin(corpus, options)
    scored = _codes(corpus, score)
    with one_administrator(source):
        policy, codes = read_corpus_policy(corpus, source.open()), codes_of(corpus, source)
        require_administrator(policy, source.principal)
        held = policy.keks_of(grantee, codes)
        left = without(policy.grant_of(grantee), scored, all_codes=codes) if score else None
        changed = _with(policy, grantee, left)
        kept = changed.keks_of(grantee, codes) if left else []
        require_keyrings(source, changed, policy.principals)
        # The policy comes last, so that a killed revocation is finished by doing it again.
        administration_for(source, changed).set_grants(grantee, policy.grant_of(grantee).grantee, kept)
        step_on(source, changed, set(held) - set(kept))
        corpus_log(corpus, source.open()).append("key.revoke", f"principal/{grantee}", "done")
        carry_out(corpus, source, changed, codes)
    notice("builds that are there open as before until: keys rotate")
    _show(corpus, source, "revoked", options)


@keys.command()
@administrator
@click.option("--department", multiple=True, metavar="DEPARTMENT", help="These only, again for each.")
@click.option("--keep-old", is_flag=True, help="Let earlier versions of the keys open what they wrapped.")
def rotate(corpus: Path, *, department: tuple[str, ...], keep_old: bool, **options: Any) -> None:
    """Give departments new keys and wrap those of all builds anew; no shard is written again."""
    from schemas.granting import codes_of, one_administrator
    from schemas.rotation import rotate as carry_on

    source = _begin(corpus, options)
    codes = _codes(corpus, department) if department else codes_of(corpus, source)
    with one_administrator(source):
        num_wrapped = carry_on(corpus, source, codes, retire=not keep_old)
    notice(f"{num_wrapped} data keys of {len(codes)} departments were wrapped anew; hand the keyrings out again")
    _show(corpus, source, "rotated", options)


@keys.command("list")
@administrator
def list_keys(corpus: Path, **options: Any) -> None:
    """Show principals with their grants, and the versions of each department's keys."""
    _show(corpus, _begin(corpus, options), "listed", options)


def _begin(corpus: Path, options: dict[str, Any]) -> KeySource:
    from schemas.access import DEFAULT_PRINCIPAL
    from schemas.logs import setup_logging

    setup_logging(options["verbose"])
    return named_keyring(corpus.absolute(), options["principal"] or DEFAULT_PRINCIPAL, options["keyring"])


def _codes(corpus: Path, departments: Sequence[str]) -> list[str]:
    """Codes as they are, names by the corpus' record key."""
    import re

    from schemas.patterns import CODE
    from sharding.identity import corpus_key_path, load_key

    if all(re.fullmatch(CODE, name) or name == "*" for name in departments):
        return list(departments)
    key = load_key(corpus_key_path(corpus))
    return [name if re.fullmatch(CODE, name) or name == "*" else key.department_code(name) for name in departments]


def _with(policy: Policy, principal: str, grant: Any) -> Policy:
    """The policy with another grant of one principal, or none; with at least one who administers.

    Raises:
        UsageError: nobody could administer any more, or no principal has such a name.
    """
    from pydantic import ValidationError

    from schemas.errors import UsageError

    principals = {name: held for name, held in policy.principals.items() if name != principal}
    if grant is not None:
        principals[principal] = grant
    if not any(held.administer for held in principals.values()):
        raise UsageError(f"principal {principal}: the only one who administers keys; let another administer first")
    try:
        return policy.model_validate({"principals": principals})
    except ValidationError:
        raise UsageError("principal: 1 to 64 letters, digits, - or _ make a name") from None


def _show(corpus: Path, source: KeySource, status: str, options: dict[str, Any]) -> None:
    from schemas.granting import read_corpus_policy
    from schemas.keyrings import keyring_path, read_keyring

    policy = read_corpus_policy(corpus, source.open())
    ring = read_keyring(keyring_path(source.folder, source.principal))
    versions = {kek_id: sorted(found) for kek_id, found in sorted(ring.keks.items())}
    signed_by = _signer_of_policy(corpus, ring)
    principals = {name: found.model_dump(mode="json") for name, found in sorted(policy.principals.items())}
    public_keys = {name: signer.public_key for name, signer in sorted(ring.signers.items())}
    result = {
        "status": status,
        "policy_digest": policy.digest,
        "principals": principals,
        "keys": versions,
        "signed_by": signed_by,
        "public_key": public_keys[signed_by],
        "public_keys": public_keys,
    }
    lines = [f"policy {policy.digest[:16]}…, signed by {signed_by}, public key {public_keys[signed_by]}"]
    lines += [f"{name:<24}{', '.join(_rights(found)) or 'nothing'}" for name, found in principals.items()]
    lines += [f"{kek_id:<24}version {', '.join(map(str, found))}" for kek_id, found in versions.items()]
    emit(result, lines, as_json=options["as_json"])


def _signer_of_policy(corpus: Path, ring: Keyring) -> str:
    """Which of the administrators whom a keyring knows has signed the policy.

    Raises:
        IntegrityError: none has.
    """
    from schemas.documents import document_content
    from schemas.manifests import POLICY_FILE
    from schemas.signing import PublicKey, signer_of

    keys = {PublicKey(signer.public_key): name for name, signer in ring.signers.items() if signer.may_administer}
    return keys[signer_of(document_content(corpus / POLICY_FILE), list(keys), POLICY_FILE)]


def _rights(grant: dict[str, Any]) -> list[str]:
    scores = [f"score {code}" for code in grant["score"]]
    return [*(name for name in RIGHTS if grant[name]), *scores]
