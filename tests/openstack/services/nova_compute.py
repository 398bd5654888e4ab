# SPDX-License-Identifier: Apache-2.0
"""Runs nova-compute with the virt driver beside this file, and without its long first wait for the conductor."""

import functools
import os
import sys

from nova.cmd.compute import main  # first: it decides how Nova does things at once
from nova.conductor import api
import nova.virt

# Nova takes drivers from this package alone.
nova.virt.__path__.append(os.path.dirname(os.path.abspath(__file__)))
# The conductor starts beside it: ask each second, not each ten.
api.API.wait_until_ready = functools.partialmethod(api.API.wait_until_ready, early_timeout=1, early_attempts=100)

if __name__ == "__main__":
    sys.exit(main())
