import threading
from collections.abc import Iterator

import pytest

from tests.unit.engine.fake_runner import FakeRunner


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "engine"]
