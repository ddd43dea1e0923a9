"""One document of a bulk run, or the reason it cannot be submitted."""

from dataclasses import dataclass

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a document cannot be submitted; `message` names the place and quotes no content."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """A named text; `index` counts from 0 over all inputs. `text` is empty when there is a `fault`."""

    index: int
    name: str
    text: str
    fault: Fault | None = None


def fault_in(text: str) -> Fault | None:
    """Return what makes `text` unfit for submission, or None."""
    if not text.strip():
        return Fault("empty_document", "the document is empty: remove it or give it text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Fault("invalid_text", f"unpaired surrogate at character {error.start}: write the text as valid Unicode")
    return None


def too_large(place: str) -> Fault:
    """Return the fault of a document beyond `MAX_DOCUMENT_BYTES`."""
    limit = MAX_DOCUMENT_BYTES // (1024 * 1024)
    return Fault("document_too_large", f"{place} is larger than {limit} MiB: split it")


def not_utf8(place: str, offset: int) -> Fault:
    """Return the fault of text in another encoding, first seen `offset` bytes into the file."""
    return Fault("not_utf8", f"{place} is not UTF-8 at byte {offset}: convert it, for example with iconv")
