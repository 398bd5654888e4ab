# SPDX-License-Identifier: Apache-2.0
# Removes all that a run of the harness left on the machine: processes, mounts, loop devices, cgroups, files. May be
# repeated at any point. Prints what could not be removed and fails then. usage: sh -c TEXT teardown RUN_DIRECTORY
set -u
PATH=$PATH:/usr/sbin:/sbin
run=$1
base=$(dirname "$run")
[ -d "$run" ] || exit 0
status=0

# until_gone SECONDS COMMAND...: repeats the command until it prints nothing; what it prints at the end remains.
until_gone() {
    deadline=$(($(date +%s) + $1))
    shift
    while :; do
        remains=$("$@" 2>&1)
        [ -n "$remains" ] || return 0
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}

complain() {
    printf '%s\n' "$*" >&2
    status=1
}

# A process is the one that was written down only if it also started at the same time: ids are used again.
same_process() {
    [ -r "/proc/$1/stat" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20)" = "$2" ]
}

running() {
    for file in "$run"/*/init; do
        [ -e "$file" ] || continue
        read -r pid started <"$file"
        if same_process "$pid" "$started"; then
            kill -KILL "$pid"
            echo "process $pid"
        fi
    done
}

# The first process of the first node is the init of a process namespace: all others of the run end with it, and with the
# last of them the mounts and the network.
until_gone 30 running || complain "still running: $remains"

# The kubelet holds a raw block volume by a loop device over its device, whose file a node names in its own way.
devices=$(mountpoint -d /dev)
detach_above() {
    inode=$(stat --format %i "$1")
    # Numbers are padded with spaces, which the raw form writes as \x20.
    losetup --noheadings --raw --output NAME,BACK-INO,BACK-MAJ:MIN | sed 's/\\x20//g' | while read -r above ino device; do
        [ "$ino $device" != "$inode $devices" ] || losetup --detach "$above"
    done
}

loop_devices() {
    losetup --noheadings --raw --output NAME,BACK-FILE | while read -r name file; do
        case $file in
        "$run"/*)
            detach_above "$name"
            losetup --detach "$name"
            echo "$name ($file)" ;;
        esac
    done
}
until_gone 30 loop_devices || complain "still attached: $remains"

cgroups() {
    sed -n 's/^.* \([^ ]*\) [^ ]* - cgroup2\{0,1\} .*$/\1/p' /proc/self/mountinfo | while read -r hierarchy; do
        for group in "$hierarchy/$(basename "$run")"-*; do
            [ -d "$group" ] || continue
            find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
            [ ! -d "$group" ] || echo "$group"
        done
    done
}
until_gone 30 cgroups || complain "cgroups with processes in them: $remains"

mounts() {
    grep -F " $run/" /proc/self/mountinfo | cut -d ' ' -f 5
}
until_gone 10 mounts || complain "still mounted: $remains"

if [ $status = 0 ]; then
    rm -rf --one-file-system "$run" || complain "files that could not be removed are left in $run"
fi

# The mount point that the first run made goes with the last: removing it would unmount whatever others have there.
(
    flock --timeout 30 9 || exit 0
    if [ -e "$base/made-dev-disk" ] && [ -z "$(find "$base" -mindepth 1 -maxdepth 1 -type d)" ] &&
        ! grep -qs ' /dev/disk ' /proc/[0-9]*/mountinfo; then
        rmdir /dev/disk 2>/dev/null
        rm -f "$base/made-dev-disk"
    fi
) 9>"$base/lock"
exit $status
