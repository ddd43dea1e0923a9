"""`python -m workers.engine.genai_child CONNECTION PARENT`: onnxruntime-genai in a process of its own.

Its calls hold the interpreter's lock, so in the worker they would stop the heartbeat; its faults would end the worker.
"""

import ctypes
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from workers.engine import genai_wire
from workers.engine.genai_wire import Fields, Message

if TYPE_CHECKING:
    from workers.engine.genai_model import GenaiModel

PR_SET_PDEATHSIG = 1
FIRST_TO_BE_KILLED = "1000"


def _die_with(parent: int) -> None:
    """Have the kernel end this process with its parent, even in the middle of a call."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _limit_memory() -> None:
    """Make a shortage of memory a failed allocation of this process, and never the end of the worker."""
    available = psutil.virtual_memory().available
    resource.setrlimit(resource.RLIMIT_DATA, (available, available))
    Path("/proc/self/oom_score_adj").write_text(FIRST_TO_BE_KILLED, encoding="ascii")


def _load(fields: Fields) -> "GenaiModel":
    # Late: the limits stand before the runtime is loaded.
    from workers.engine.genai_model import GenaiModel  # noqa: PLC0415  # see above

    model = GenaiModel(Path(fields["directory"]), fields["threads"], fields["vocab_size"])
    model.append([0], 0, 2, None, "")
    model.release(None)
    return model


def _answer(model: "GenaiModel", operation: str, fields: Fields) -> Message:
    result: Any = getattr(model, operation)(**fields)
    return Message({}, result) if isinstance(result, bytes) else Message({"result": result})


def _failure(error: Exception) -> Message:
    return Message({"error": type(error).__name__, "message": str(error)})


def _serve(connection: "Connection[bytes, bytes]", model: "GenaiModel") -> None:
    while True:
        request = genai_wire.receive(connection).fields
        try:
            reply = _answer(model, request.pop("operation"), request)
        except Exception as error:  # noqa: BLE001  # whatever the runtime raises is the parent's to judge
            reply = _failure(error)
        genai_wire.send(connection, reply)


def main(connection: "Connection[bytes, bytes]") -> None:
    """Load the model the first message names, then answer until the parent hangs up."""
    try:
        model = _load(genai_wire.receive(connection).fields)
    except Exception as error:  # noqa: BLE001  # as above
        genai_wire.send(connection, _failure(error))
        return
    genai_wire.send(connection, Message())
    _serve(connection, model)


if __name__ == "__main__":
    _die_with(int(sys.argv[2]))
    _limit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the worker decides when this one ends
    try:
        main(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        sys.exit(0)
