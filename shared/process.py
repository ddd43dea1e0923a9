"""What every process of the fleet does first: leave nothing of its memory behind."""

import os
import resource

PRIVATE_UMASK = 0o077


def harden() -> None:
    """Switch core dumps off, for this process and what it starts, and make new files private."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(PRIVATE_UMASK)
