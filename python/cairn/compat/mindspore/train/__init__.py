"""MindSpore's mindspore.train, as far as it is about the parameter server: the loss lines."""
from . import callback
from .callback import LossMonitor

__all__ = ["LossMonitor", "callback"]
