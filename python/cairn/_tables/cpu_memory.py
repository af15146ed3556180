"""What memory that the extension reads or writes is made of, whatever torch.set_default_dtype() and
torch.set_default_device() say: torch.zeros(n, **FLOATS)."""
from __future__ import annotations

from typing import Any

import torch

FLOATS: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
INTEGERS: dict[str, Any] = {"dtype": torch.int64, "device": "cpu"}
