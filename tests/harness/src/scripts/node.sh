# SPDX-License-Identifier: Apache-2.0
# First thing that runs in the namespaces of a node: gives the node places of its own, says that it is there, and turns
# into the program that keeps the namespaces. usage: sh -c TEXT node NODE_DIRECTORY INIT_PROGRAM
set -eu
node=$1
init=$2

# /proc is still the one of the outside, and with it these are the id and the start time that the outside knows.
read -r outer_pid _ </proc/self/stat
started=$(sed 's/.*) //' "/proc/$outer_pid/stat" | cut -d ' ' -f 20)

# Shared from here on, so that mounts made in containers reach the kubelet; the outside is no part of it.
mount --make-rshared /
mount -t proc proc /proc
# containerd's and CNI's sockets and name spaces live in /run, everything of the kubelet in /var.
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/lock "$node/var/lib/kubelet" "$node/var/log/pods" "$node/var/tmp" "$node/var/cache"
ln -sfn /run "$node/var/run"
ln -sfn /run/lock "$node/var/lock"
mount --bind "$node/var" /var
# Volumes that are attached to this node's server have their links here and nowhere else.
mount -t tmpfs -o mode=755 none /dev/disk
mkdir -p /dev/disk/by-id
# Without name servers, names that nobody resolves fail at once instead of after a timeout.
if [ -e /etc/resolv.conf ]; then
    : >"$node/resolv.conf"
    mount --bind "$node/resolv.conf" /etc/resolv.conf
fi
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward

echo "$outer_pid $started" >"$node/init.new"
mv "$node/init.new" "$node/init"
exec "$init"
