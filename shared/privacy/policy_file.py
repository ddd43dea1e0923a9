"""Policies by name or from a file."""

from pathlib import Path

from pydantic import ValidationError

from shared.errors import InvalidInputError
from shared.privacy.policy import Policy, policy_named


def load_policy(name: str) -> Policy:
    """Return the built-in policy `name`, or the one in the JSON file of that name.

    Raises:
        InvalidInputError: there is neither, or the file does not hold a policy; names the field.
    """
    path = Path(name)
    if not path.is_file():
        return policy_named(name)
    try:
        return Policy.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise InvalidInputError(f"{path} is no policy: {where}: {first['msg']}", field="policy") from None
