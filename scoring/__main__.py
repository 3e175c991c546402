"""``python -m scoring``."""

import sys

from schemas.console import launch
from scoring.cli import cli

sys.exit(launch(cli, "python -m scoring"))
