"""The built-in recognizers, one module per family; each exports `RECOGNIZERS`."""

from shared.privacy.recognizers import bank_card, credentials_url, email, ip_address, phone, resident_id
from shared.privacy.recognizers.recognizer import Recognizer

BUILT_IN: tuple[Recognizer, ...] = (
    *credentials_url.RECOGNIZERS,
    *resident_id.RECOGNIZERS,
    *bank_card.RECOGNIZERS,
    *phone.RECOGNIZERS,
    *email.RECOGNIZERS,
    *ip_address.RECOGNIZERS,
)

__all__ = ["BUILT_IN", "Recognizer"]
