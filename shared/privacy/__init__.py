"""Personal data out before inference, back in for its owner: `Scrubber`, `restore`, policies."""

from shared.privacy.policy import DEFAULT, STRICT, Action, Policy
from shared.privacy.restore import restore
from shared.privacy.scrubber import Scrubber, ScrubResult
from shared.privacy.span import Span

__all__ = ["DEFAULT", "STRICT", "Action", "Policy", "ScrubResult", "Scrubber", "Span", "restore"]
