# SPDX-License-Identifier: Apache-2.0
"""Waiting with a limit."""

import socket
import time

from control.errors import CloudError

PAUSE = 0.1


def wait_for(what, seconds, ask):
    """Asks until the answer is true and returns it. `ask` raises to end the wait at once."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise CloudError(f"{what}: not after {seconds} s")
        time.sleep(PAUSE)


def listens(port):
    """Whether somebody listens on this port of the loopback device."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
