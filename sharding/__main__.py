"""``python -m sharding``."""

import sys

from schemas.console import launch
from sharding.cli import cli

sys.exit(launch(cli, "python -m sharding"))
