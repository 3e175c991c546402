"""``python -m aggregate``."""

import sys

from aggregate.cli import cli
from schemas.console import launch

sys.exit(launch(cli, "python -m aggregate"))
