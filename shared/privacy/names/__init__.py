"""Names of persons: Han script by a tagger and rules, other scripts by lists and labels. Slower than patterns."""

from shared.privacy.names.han_names import HanNames
from shared.privacy.names.latin_names import LatinNames
from shared.privacy.recognizers.recognizer import Finder

NAMES: tuple[Finder, ...] = (HanNames(), LatinNames())

__all__ = ["NAMES"]
