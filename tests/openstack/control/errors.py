# SPDX-License-Identifier: Apache-2.0
"""The one kind of error that is shown to the user without a trace."""


class CloudError(Exception):
    """Says what failed, why, and where to look."""


def tail(path, lines=15):
    """The end of a log with its place, or nothing where there is none."""
    try:
        text = path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return f"{path} was not written"
    return "\n".join([f"the end of {path}:", *text])
