"""Medical record numbers: whatever number stands behind their label."""

from shared.privacy.recognizers.recognizer import RIGHT, Candidate, Recognizer

_LABEL = (
    r"(?i:(?:病历|病歷|病案|住院|门诊|門診|就诊|登记|就诊卡|诊疗卡|健康卡|患者|病人)(?:编?[号號]码?|id)|就诊卡|诊疗卡|"
    r"mrn|med(?:ical)? rec(?:ord)?|(?:patient|chart|hospital|admission|inpatient|outpatient)[ _-]?(?:id|no|num|number))"
)
_BETWEEN = r"""(?i:[ ]?(?:no\.?|number|num|id|#))?["' ]{0,2}(?:[:=#]|是|为|(?i:is))?[\s"'(]{0,3}"""
_PATTERN = rf"{_LABEL}{_BETWEEN}((?:[A-Za-z]{{1,4}}[ -]?)?[0-9](?:-?[0-9]){{3,19}}[A-Za-z]?){RIGHT}"


def _check(candidate: Candidate) -> Candidate | None:
    return candidate


RECOGNIZERS = (Recognizer.of("MEDICAL_RECORD_NO", _PATTERN, _check),)
