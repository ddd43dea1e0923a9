"""Exit codes of the command line.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the fleet did not do it: a job failed, a server did not start, the API reported an error |
| 2 | wrong usage or configuration |
| 3 | no fleet is running or the API cannot be reached |
| 4 | the API key is missing, invalid or lacks a scope |
| 5 | no such thing |
| 130 | interrupted |
"""

from enum import IntEnum

from shared.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TokenmillError,
)


class ExitCode(IntEnum):
    """What the shell sees."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    NOT_FOUND = 5
    INTERRUPTED = 130


_CODES: tuple[tuple[type[TokenmillError], ExitCode], ...] = (
    (NotFoundError, ExitCode.NOT_FOUND),
    (AuthenticationError, ExitCode.DENIED),
    (PermissionDeniedError, ExitCode.DENIED),
    (ServiceUnavailableError, ExitCode.UNREACHABLE),
    (ConfigurationError, ExitCode.USAGE),
    (InvalidInputError, ExitCode.USAGE),
)


def exit_code_of(error: TokenmillError) -> ExitCode:
    """Return the exit code for an error raised on purpose."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
