"""Messages between a worker and its genai child: a JSON header, and numbers as they lie in memory."""

import json
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`fields` are JSON; `payload` is raw bytes, logits [vocab] float32 for instance."""

    fields: Fields = field(default_factory=dict)
    payload: bytes = b""


def send(connection: "Connection[bytes, bytes]", message: Message) -> None:
    """Write `message`; raises OSError when the other side is gone."""
    connection.send_bytes(json.dumps(message.fields).encode())
    connection.send_bytes(message.payload)


def receive(connection: "Connection[bytes, bytes]") -> Message:
    """Read the next message; raises EOFError or OSError when the other side is gone."""
    fields = json.loads(connection.recv_bytes())
    return Message(fields, connection.recv_bytes())
