"""Provinces and cities of China, by which a postal address is known to begin."""

from pathlib import Path

from shared.privacy.words import one_of

_FOLDER = Path(__file__).parent
PROVINCES = sorted(one_of((_FOLDER / "provinces.txt").read_text(encoding="utf-8")))
CITIES = sorted(one_of((_FOLDER / "cities.txt").read_text(encoding="utf-8")))
