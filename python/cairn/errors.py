"""The exceptions of cairn. All are `cairn.Error`; those that have a counterpart in Python are that too.

The extension raises them by name: each Status code of the C++ core has its class here.
"""


class Error(RuntimeError):
    """What every error of cairn is."""


class InvalidArgumentError(Error, ValueError):
    """A mistake in a call: a wrong shape, an unknown option. Trying again will not help."""


class NotFoundError(Error, LookupError):
    """An unknown table, rank or file."""


class AlreadyExistsError(Error):
    """A table of this name exists with other properties."""


class NotFiniteError(Error, ArithmeticError):
    """NaN or Inf in a push to a table that refuses them. Nothing of the push was applied."""


class UnavailableError(Error):
    """A node can't be reached (yet). Trying again may help."""


class DeadlineExceededError(TimeoutError, Error):
    """The call's deadline passed; the message names who is missing."""


class RetiredError(Error):
    """The scheduler has taken this worker for dead. Start the process again."""


class OutcomeUnknownError(Error):
    """An unacknowledged push may or may not have been applied."""


class JobFailedError(Error):
    """The job has ended with an error; the message names the cause."""


class ProtocolError(Error):
    """The peer speaks another version, or is no part of Cairn."""


class ResourceExhaustedError(Error):
    """A limit was reached; the message names it."""


class HyperMismatchError(Error):
    """Workers of one sync round gave different hyper-parameters; the message names the ranks."""


class CancelledError(Error):
    """The client was closed while the call was under way, or before it."""


class IoError(OSError, Error):
    """A file or socket operation failed."""


class InternalError(Error):
    """A mistake in Cairn itself. Please report it."""


class NotInitializedError(Error):
    """cairn.init() has not been called, or cairn.shutdown() has."""


class ForkedError(Error):
    """A call in a process that was made by fork or multiprocessing from one that uses cairn."""


for _class in [c for c in list(globals().values()) if isinstance(c, type) and issubclass(c, Error)]:
    _class.__module__ = "cairn"  # where users find them
