"""Medical record numbers: whatever number stands behind their label."""

import re

from shared.privacy.recognizers.recognizer import RIGHT, Candidate, Recognizer

_LABEL = (
    r"(?i:(?:病历|病歷|病例|病案|住院|门诊|門診|就诊|急诊|体检|健康档案|登记|就诊卡|诊疗卡|健康卡|患者|病人)"
    r"(?:编?[号號]码?|id)|就诊卡|诊疗卡|mrn|mr#|med(?:ical)?\.? rec(?:ord|\.)?|"
    r"(?:patient|chart|hospital|admission|inpatient|outpatient)[ _-]?(?:id|no|num|number))"
)
_BETWEEN = (
    r"""(?i:[ ]?(?:no|number|num|id|#))?\.?(?:[ ]?\([A-Za-z一-龥 ]{2,24}\))?["' )]{0,2}"""
    r"""(?:[:=#]|是|为|(?i:is))?[\s"'(]{0,3}"""
)
_NUMBER = (
    "(?:[A-Za-z]{1,4}[ -]?)?[0-9][0-9A-Za-z]{0,19}(?:-[0-9A-Za-z]{1,12}){0,4}|[A-Za-z]{1,4}(?:-?[0-9A-Za-z]{1,12}){1,4}"
)
_PATTERN = rf"{_LABEL}{_BETWEEN}({_NUMBER}){RIGHT}"
_CELL_PATTERN = rf"(?:^|[|,;\t\n]) ?({_NUMBER}) ?(?:[|,;\t\r\n]|$)"
_HEADINGS = ("病历", "病歷", "病案", "住院", "门诊", "MRN", "mrn", "ecord", "atient", "hart")
_HEADING = re.compile(_LABEL)
_REGISTERED_TRIAL = ("NCT", "CHICTR", "ISRCTN")
_MIN_DIGITS = 4


def _check(candidate: Candidate) -> Candidate | None:
    number = candidate.alphanumerics
    enough = sum(map(str.isdigit, number)) >= _MIN_DIGITS
    return candidate if enough and not number.startswith(_REGISTERED_TRIAL) else None


def _cell(candidate: Candidate) -> Candidate | None:
    return _check(candidate) if _HEADING.match(candidate.heading) else None


RECOGNIZERS = (
    Recognizer.of("MEDICAL_RECORD_NO", _PATTERN, _check),
    Recognizer.of("MEDICAL_RECORD_NO", _CELL_PATTERN, _cell, needs=_HEADINGS),
)
