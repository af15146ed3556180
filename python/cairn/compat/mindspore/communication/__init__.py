"""MindSpore's communication: init, get_rank and get_group_size of the job's workers."""
from . import management
from .management import get_group_size, get_local_rank, get_rank, init, release

__all__ = ["get_group_size", "get_local_rank", "get_rank", "init", "management", "release"]
