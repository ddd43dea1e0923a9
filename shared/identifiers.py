"""Identifiers that sort by time: a prefix that names the kind, then a UUID version 7 in hex."""

import secrets
import time


def new_id(prefix: str) -> str:
    """Return `<prefix>_<32 hex digits>`, increasing with time to the millisecond (RFC 9562, version 7)."""
    milliseconds = time.time_ns() // 1_000_000
    low = (secrets.randbits(62)) | (0b10 << 62)
    high = (milliseconds << 16) | (0x7 << 12) | secrets.randbits(12)
    return f"{prefix}_{(high << 64) | low:032x}"
