"""waits.py -- a test in Python waits for a condition, never for a usual time. The time is for what never comes: a busy
machine may need a part of it."""
import time


def wait_until(holds, seconds: float = 60) -> bool:
    """Asks until it holds; False if it does not even after so long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
