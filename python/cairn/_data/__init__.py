"""Who gets which samples: how an epoch is cut, claimed and passed through. cairn/data.py and
cairn/metrics.py use it."""
