"""The text of an attachment: base64 that is really base64, a media type that is text, a charset that fits the bytes.

Sources: FHIR R4 and R5, "Attachment" and "base64Binary" (white space between groups of four is allowed); RFC 4648,
sections 3 and 4; RFC 2045, section 5.1, for ``contentType`` and its parameters.
"""

from __future__ import annotations

import base64
from email.message import Message

from sharding.sources.encodings import charset
from sharding.sources.source import MALFORMED, UNDECODABLE

UNSUPPORTED_MEDIA = "unsupported_media"
NO_CONTENT = "no_content"

# Marked-up text is kept as it is: which of it is the note is not for a reader of files to say.
TEXT_MEDIA = ("text/plain", "text/html", "application/xhtml+xml", "text/xml", "application/xml")
# Of several formats of one text the first here is the best to read.
MEDIA_RANKS = {media: rank for rank, media in enumerate(TEXT_MEDIA)}
DEFAULT_CHARSET = "utf-8"
_NO_SPACE = dict.fromkeys(map(ord, " \t\r\n"))


def text_of(data: str, *content_types: str | None) -> tuple[str | None, str | None]:
    """Decode an attachment.

    Args:
        data: Base64 of the bytes.
        content_types: As in the attachment, perhaps with a charset; of a Binary its own, then that of the attachment.

    Returns:
        The text and None, or None and the reason why there is no text.
    """
    media, name = media_and_charset(*content_types)
    if media not in MEDIA_RANKS:
        return None, UNSUPPORTED_MEDIA
    try:
        content = base64.b64decode(data.translate(_NO_SPACE), validate=True)
    except ValueError:
        return None, MALFORMED
    try:
        text = content.decode(charset(name)).removeprefix("\ufeff")
        text.encode("utf-8")
    except (ValueError, LookupError):  # bytes that do not fit, or no charset's name at all
        return None, UNDECODABLE
    return text, None


def media_and_charset(*content_types: str | None) -> tuple[str, str]:
    """The first media type that is said, in lower case, and the first charset; ``utf-8`` where none is said."""
    said = [_parsed(content_type) for content_type in content_types if content_type]
    media = next((media for media, _ in said if media), "")
    return media, next((name for _, name in said if name), DEFAULT_CHARSET)


def _parsed(content_type: str) -> tuple[str, str | None]:
    message = Message()
    message["Content-Type"] = " ".join(content_type.split())
    name = message.get_param("charset")
    return content_type.partition(";")[0].strip().lower(), name if isinstance(name, str) else None
