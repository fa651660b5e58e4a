"""The rows of token_lines.yaml."""

from pathlib import Path
from typing import Any

import yaml

ROWS: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("token_lines.yaml").read_text())
