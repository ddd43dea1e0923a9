"""The built-in recognizers, one module per family; each exports `RECOGNIZERS`."""

from shared.privacy.recognizers import (
    address,
    bank_card,
    credentials_url,
    date_of_birth,
    email,
    iban,
    ip_address,
    mac_address,
    medical_record,
    national_id,
    passport,
    phone,
    plate,
    resident_id,
    secret,
    social_credit_code,
)
from shared.privacy.recognizers.recognizer import Finder, Recognizer

BUILT_IN: tuple[Recognizer, ...] = (
    *credentials_url.RECOGNIZERS,
    *secret.RECOGNIZERS,
    *resident_id.RECOGNIZERS,
    *social_credit_code.RECOGNIZERS,
    *iban.RECOGNIZERS,
    *national_id.RECOGNIZERS,
    *passport.RECOGNIZERS,
    *bank_card.RECOGNIZERS,
    *medical_record.RECOGNIZERS,
    *mac_address.RECOGNIZERS,
    *ip_address.RECOGNIZERS,
    *date_of_birth.RECOGNIZERS,
    *phone.RECOGNIZERS,
    *email.RECOGNIZERS,
    *plate.RECOGNIZERS,
    *address.RECOGNIZERS,
)

__all__ = ["BUILT_IN", "Finder", "Recognizer"]
