"""How every command is told who runs it and where the keys are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schemas.console import NamedPath

if TYPE_CHECKING:
    from schemas.access import Access, KeySource

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
ACCESS_OPTIONS = ("principal", "keyring", "plaintext")
ACCEPT_PLAINTEXT = "Open what was built with --plaintext, although it is not signed."
FOLDER = NamedPath(file_okay=False, path_type=Path)


def access_options(plaintext: str) -> Callable[[CommandT], CommandT]:
    """Add ``--principal``, ``--keyring`` and ``--plaintext``, of which the argument says what it means here."""

    def added(command: CommandT) -> CommandT:
        for option in (
            click.option("--plaintext", is_flag=True, envvar="PPL_PLAINTEXT", help=plaintext),
            click.option(
                "--keyring",
                type=FOLDER,
                envvar="PPL_KEYRING",
                help="Folder with the principal's keyring; CORPUS/secret/keyring by default. [PPL_KEYRING]",
            ),
            click.option(
                "--principal",
                envvar="PPL_PRINCIPAL",
                help="Who runs this: a name in the policy. By default whose keyring is alone there, or owner. "
                "[PPL_PRINCIPAL]",
            ),
        ):
            command = option(command)
        return command

    return added


def key_source(corpus: Path, *, principal: str | None, keyring: Path | None, plaintext: bool) -> KeySource | None:
    """The keyring that a command's options name; None for ``--plaintext``.

    Raises:
        click.UsageError: they contradict each other.
    """
    if plaintext and keyring is not None:
        raise click.UsageError("--plaintext and --keyring: nothing is opened with keys then; give one of them")
    return None if plaintext else named_keyring(corpus, principal, keyring)


def named_keyring(corpus: Path, principal: str | None, keyring: Path | None) -> KeySource:
    """The keyring of a principal, both as they are given or else by default."""
    from schemas.access import DEFAULT_PRINCIPAL, KeySource
    from schemas.keyrings import principals_in
    from schemas.manifests import KEYRING_FOLDER, SECRET_FOLDER

    folder = (keyring or corpus / SECRET_FOLDER / KEYRING_FOLDER).absolute()
    if principal is None:
        there = principals_in(folder)
        principal = there[0] if len(there) == 1 else DEFAULT_PRINCIPAL
    return KeySource(folder, principal)


def reader_access(path: Path, *, principal: str | None, keyring: Path | None, plaintext: bool) -> Access | None:
    """What a command that reads a build may open.

    Args:
        path: Corpus or build.
        principal: As given.
        keyring: As given.
        plaintext: Whether only what was made with ``--plaintext`` is to be read.

    Returns:
        The opened keyring; None for ``--plaintext``, and where none was named and the corpus has none: then nothing
        encrypted can be read, and nothing signed is known.
    """
    from schemas.manifests import BUILDS_FOLDER

    inside = path.absolute().parent
    corpus = inside.parent if inside.name == BUILDS_FOLDER else path
    source = key_source(corpus, principal=principal, keyring=keyring, plaintext=plaintext)
    if source is None or (keyring is None and principal is None and not source.folder.is_dir()):
        return None
    return source.open()
