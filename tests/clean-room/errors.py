# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a way that somebody can do something about."""


class RoomError(Exception):
    """Its text says what to do."""
