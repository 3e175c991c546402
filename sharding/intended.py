"""Reasons for which a source leaves something out as it should: they are in the ledger, and no sign of bad input.

What is rejected for any other reason counts against ``--max-rejects``.
"""

from __future__ import annotations

ENTERED_IN_ERROR = "entered_in_error"
MARKED_ERROR = "marked_error"
# A format of a document whose text is taken from another one.
OTHER_FORMAT = "other_format"
# A report of measured values only.
NO_TEXT = "no_text"

INTENDED = frozenset({ENTERED_IN_ERROR, MARKED_ERROR, OTHER_FORMAT, NO_TEXT})
