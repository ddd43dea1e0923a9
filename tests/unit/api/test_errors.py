import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.errors import STATUS, database_is_away, error_body, error_response
from shared.errors import InvalidInputError, TokenmillError


def every_error(kind: type[TokenmillError] = TokenmillError) -> list[type[TokenmillError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in every_error(child))]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status(kind: type[TokenmillError]) -> None:
    assert 400 <= STATUS[kind.code] < 600


@pytest.mark.parametrize("code", sorted(STATUS))
def test_headers_say_whether_and_when_to_retry(code: str) -> None:
    error = TokenmillError("no")
    error.code = code  # type: ignore[misc]  # one instance of each code
    answer = error_response(error)
    assert answer.status_code == STATUS[code]
    assert ("retry-after" in answer.headers) == (answer.status_code in {429, 503})
    assert (answer.headers.get("x-should-retry") == "false") == (answer.status_code == 409)


def test_the_shape_is_openais_and_paths_are_dotted() -> None:
    error = InvalidInputError("is empty", field="messages[0].content")
    assert error_body(error.code, error.message, error.field) == {
        "error": {
            "message": "is empty",
            "type": "invalid_request_error",
            "param": "messages.0.content",
            "code": "invalid_input",
        }
    }


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OperationalError("SELECT 1", {}, Exception()), True),
        (InterfaceError("SELECT 1", {}, Exception()), True),
        (PoolTimeoutError(), True),
        (DBAPIError("SELECT 1", {}, Exception(), connection_invalidated=True), True),
        (DBAPIError("SELECT 1", {}, Exception()), False),
        (IntegrityError("SELECT 1", {}, Exception()), False),
    ],
)
def test_what_says_that_the_database_is_away(error: DBAPIError, away: bool) -> None:  # noqa: FBT001  # a table column
    assert database_is_away(error) is away
