# SPDX-License-Identifier: Apache-2.0
# Outlives the process that made a run and removes the run when that process ends, in whatever way: its standard input
# is a pipe whose other end only that process holds. usage: sh -c TEXT keeper TEARDOWN_TEXT RUN_DIRECTORY
trap '' HUP INT TERM
if read -r word && [ "$word" = release ]; then
    exit 0
fi
exec sh -c "$1" teardown "$2"
