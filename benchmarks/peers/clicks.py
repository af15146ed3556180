"""clicks.py FILE COUNT: writes samples of examples/synthetic_clicks.py for peers without torch."""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import synthetic_clicks  # noqa: E402

made = synthetic_clicks.make(int(sys.argv[2]))
np.savez(sys.argv[1], floats=made.floats.numpy(), ids=made.ids.numpy(), labels=made.labels.numpy())
