import os
import subprocess
import sys

import pytest

from shared.errors import ConfigurationError
from workers.topology import allowed_cores, parse_cores, pin


@pytest.mark.parametrize(
    ("text", "cores"), [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("2,0", (0, 2)), (" 1 , 3-4", (1, 3, 4)), ("5,5", (5,))]
)
def test_core_lists(text: str, cores: tuple[int, ...]) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "0,,1", "3-1", "0x1", "²", "99999-999999999999"])
def test_what_is_no_core_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_cores(text)
    assert caught.value.field == "cores"


def test_a_core_outside_the_allowed_set_is_refused_and_nothing_changes() -> None:
    before = allowed_cores()
    with pytest.raises(ConfigurationError, match="core 4095 is not available"):
        pin((before[0], 4095))
    assert allowed_cores() == before


def test_threads_that_run_already_are_pinned_too() -> None:
    program = """
import os, threading
from workers.topology import allowed_cores, pin
stop = threading.Event()
thread = threading.Thread(target=stop.wait); thread.start()
pin(allowed_cores()[:1])
later = threading.Thread(target=stop.wait); later.start()
sets = [sorted(os.sched_getaffinity(t.native_id)) for t in (threading.main_thread(), thread, later)]
stop.set()
assert sets == [[allowed_cores()[0]]] * 3, sets
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_worker_refuses_cores_it_may_not_use() -> None:
    environment = {**os.environ, "TOKENMILL_LOG_LEVEL": "INFO"}
    done = subprocess.run(
        [sys.executable, "-m", "workers", "--cores", "4000"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "core 4000 is not available to this process; choose from" in done.stderr


def test_pinning_precedes_every_library_that_starts_threads() -> None:
    program = "import sys, workers.__main__; print({'numpy', 'onnxruntime', 'tokenizers', 'celery'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
