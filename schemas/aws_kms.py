"""One connection to AWS KMS: its settings, its calls, and what its refusals mean here.

Credentials are found by boto3 itself (https://boto3.amazonaws.com/v1/documentation/api/latest/guide/credentials.html).
Its messages name accounts and users, so only the code of a refusal is read; the codes are those of the KMS API
reference ("Errors" of each action, and "Common Errors").
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field

from schemas.endpoints import Endpoint
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.extras import optional_library
from schemas.settings import Settings

EXTRA = "aws"
# Their debugging output quotes whole answers, and so keys in the clear.
LOGGERS = ("boto3", "botocore", "urllib3")
NOT_FOUND = "NotFoundException"
ALREADY_THERE = "AlreadyExistsException"

_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "UnrecognizedClientException",
    }
)
_OUT_OF_USE = frozenset({"DisabledException", "KMSInvalidStateException", NOT_FOUND})
_DAMAGED = frozenset({"IncorrectKeyException", "InvalidCiphertextException"})
_PASSING = frozenset(
    {
        "DependencyTimeoutException",
        "InternalFailure",
        "KMSInternalException",
        "KeyUnavailableException",
        "RequestExpired",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


class AwsSettings(Settings):
    """Where the keys are.

    Attributes:
        region: Such as ``eu-central-1``.
        endpoint_url: Of another address than the region's, such as a VPC endpoint.
        prefix: Aliases begin with ``alias/<prefix>/``; one prefix for each corpus.
        timeout_seconds: For a connection, and for an answer.
        num_attempts: Of a call that was throttled or met a failure that may pass.
    """

    region: str = Field(pattern=r"^[a-z0-9-]{1,64}$")
    endpoint_url: Endpoint | None = None
    prefix: str = Field(default="exactppl", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    timeout_seconds: float = Field(default=10.0, gt=0, le=600)
    num_attempts: int = Field(default=5, ge=1, le=20)


@dataclass(frozen=True)
class Kms:
    """A client that is made at the first call; a copy in another process makes its own."""

    settings: AwsSettings

    def __reduce__(self) -> tuple[type[Kms], tuple[AwsSettings]]:
        return Kms, (self.settings,)

    def call(self, operation: str, *, where: str, absent: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Answer of one action.

        Args:
            operation: As boto3 names it.
            where: How a message begins.
            absent: A code that is no failure; the answer is then empty.
            **parameters: Of the action.

        Raises:
            AccessDeniedError: not granted, no credentials, or the key is out of use.
            IntegrityError: the wrapped key is damaged, or of another key or context.
            TemporaryError: throttled, not reachable, or a failure of the service.
            UsageError: anything else; boto3 is not installed.
        """
        errors = optional_library("botocore.exceptions", extra=EXTRA)
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**parameters)
            return answer
        except errors.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if absent is not None and code == absent:
                return {}
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise _refusal(code, status, where) from None
        except errors.BotoCoreError as error:
            raise _failure(error, errors, where) from None

    def pages(self, operation: str, *, where: str, **parameters: Any) -> list[dict[str, Any]]:
        """Answers of an action that gives its list in parts.

        Raises:
            PipelineError: as ``call`` does.
        """
        found = [self.call(operation, where=where, **parameters)]
        while found[-1].get("Truncated"):
            found.append(self.call(operation, where=where, Marker=found[-1]["NextMarker"], **parameters))
        return found

    @cached_property
    def _client(self) -> Any:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        boto3 = optional_library("boto3.session", extra=EXTRA)
        config = optional_library("botocore.config", extra=EXTRA).Config(
            connect_timeout=self.settings.timeout_seconds,
            read_timeout=self.settings.timeout_seconds,
            retries={"total_max_attempts": self.settings.num_attempts, "mode": "standard"},
        )
        return boto3.Session().client(
            "kms", region_name=self.settings.region, endpoint_url=self.settings.endpoint_url, config=config
        )


def _refusal(code: str, status: int, where: str) -> PipelineError:
    """What a code of the service means; anything unknown is named by its code."""
    if code in _DENIED:
        return AccessDeniedError(f"{where}: AWS KMS refuses ({code}); ask whoever administers the keys for a grant")
    if code in _OUT_OF_USE:
        return AccessDeniedError(
            f"{where}: no such key in use ({code}); it was retired, or the region or prefix is another one"
        )
    if code in _DAMAGED:
        return IntegrityError(
            f"{where}: the wrapped key does not open; it is damaged or of another build or shard; restore the file"
        )
    if code in _PASSING or status >= 500:
        return TemporaryError(f"{where}: AWS KMS failed for now ({_shown(code)}, status {status}); run again")
    return UsageError(f"{where}: AWS KMS cannot do this ({_shown(code)}, status {status}); see its API reference")


def _failure(error: Exception, errors: Any, where: str) -> PipelineError:
    """What an exception of botocore means, by its type alone: its text may name hosts and users."""
    name = type(error).__name__
    if isinstance(error, errors.HTTPClientError | errors.ConnectionError):
        return TemporaryError(f"{where}: AWS KMS cannot be reached ({name}); look at the network, and run again")
    if isinstance(error, errors.NoCredentialsError | errors.PartialCredentialsError | errors.CredentialRetrievalError):
        return AccessDeniedError(f"{where}: no credentials for AWS KMS ({name}); give this principal its own")
    return UsageError(f"{where}: boto3 cannot ask AWS KMS ({name}); look at region, endpoint and AWS configuration")


def _shown(code: str) -> str:
    return code if re.fullmatch(r"[A-Za-z0-9.]{1,80}", code) else "no code"
