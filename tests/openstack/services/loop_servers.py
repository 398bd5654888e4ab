# SPDX-License-Identifier: Apache-2.0
"""A Nova virt driver whose servers are directories of this machine.

An attached volume is a loop device, and a link to it in the server's by-id directory, as udev would make it in a guest of
QEMU. What exists is kept in a file for each host, so that the servers and their devices outlive nova-compute.
"""

import json
import os
import subprocess
import threading

from nova.compute import power_state
from nova.virt import fake, node

TOOL_SECONDS = 30
# What QEMU passes on of a disk's serial number.
SERIAL_LENGTH = 20


def _losetup(*arguments):
    command = ["losetup", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.split()


class State:
    """Servers by id: name, power state, and devices by volume id. Written at once, whole."""

    def __init__(self, path):
        self._path = path
        self.lock = threading.RLock()
        try:
            with open(path, encoding="utf-8") as file:
                self.servers = json.load(file)
        except FileNotFoundError:
            self.servers = {}

    def save(self):
        part = self._path + ".part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(self.servers, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self._path)


class LoopDriver(fake.FakeDriver):
    """One node, which runs every server of its host."""

    capabilities = dict(fake.FakeDriver.capabilities, supports_extend_volume=True, supports_multiattach=True)

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self._root = os.environ["SERVERS_DIR"]

    def init_host(self, host):
        super().init_host(host)
        os.makedirs(self._root, exist_ok=True)
        self._state = State(os.path.join(self._root, f"{host}.json"))
        for server_id, server in self._state.servers.items():
            self.instances[server_id] = fake.FakeInstance(server["name"], server["power_state"], server_id)
            for volume_id, device in server["devices"].items():
                self._connect(server_id, volume_id, device["path"])
        self._state.save()

    # The node's identity is in a file of Nova's: the base class makes up another one in each process.

    def get_nodenames_by_uuid(self, refresh=False):
        (name,) = self.get_available_nodes()
        return {node.get_local_node_uuid(): name}

    def get_available_resource(self, nodename):
        return dict(super().get_available_resource(nodename), uuid=node.get_local_node_uuid())

    # Servers.

    def spawn(self, context, instance, *args, **kwargs):
        super().spawn(context, instance, *args, **kwargs)
        with self._state.lock:
            server = self._state.servers.setdefault(instance.uuid, {"devices": {}})
            server.update(name=instance.name, directory=self._directory(instance), power_state=power_state.RUNNING)
            os.makedirs(self._by_id(instance.uuid), exist_ok=True)
            self._state.save()

    def destroy(self, context, instance, *args, **kwargs):
        super().destroy(context, instance, *args, **kwargs)
        with self._state.lock:
            for volume_id in list(self._state.servers.get(instance.uuid, {}).get("devices", {})):
                self._disconnect(instance.uuid, volume_id)
            self._state.servers.pop(instance.uuid, None)
            self._state.save()

    def power_off(self, instance, *args, **kwargs):
        super().power_off(instance, *args, **kwargs)
        self._set_power(instance, power_state.SHUTDOWN)

    def power_on(self, context, instance, *args, **kwargs):
        super().power_on(context, instance, *args, **kwargs)
        self._set_power(instance, power_state.RUNNING)

    def pause(self, instance):
        self._set_power(instance, power_state.PAUSED)

    def unpause(self, instance):
        self._set_power(instance, power_state.RUNNING)

    def suspend(self, context, instance):
        self._set_power(instance, power_state.SUSPENDED)

    def resume(self, context, instance, *args, **kwargs):
        self._set_power(instance, power_state.RUNNING)

    def _set_power(self, instance, state):
        with self._state.lock:
            if instance.uuid in self.instances:
                self.instances[instance.uuid].state = state
            if instance.uuid in self._state.servers:
                self._state.servers[instance.uuid]["power_state"] = state
                self._state.save()

    @staticmethod
    def _directory(instance):
        """A directory by the server's name, where that is a host name; a user may name servers as they like."""
        return instance.hostname or instance.uuid

    def _by_id(self, server_id):
        return os.path.join(self._root, self._state.servers[server_id]["directory"], "by-id")

    # Volumes.

    def attach_volume(self, context, connection_info, instance, mountpoint, *args, **kwargs):
        super().attach_volume(context, connection_info, instance, mountpoint, *args, **kwargs)
        with self._state.lock:
            self._connect(instance.uuid, connection_info["serial"], connection_info["data"]["device_path"])
            self._state.save()

    def detach_volume(self, context, connection_info, instance, mountpoint, *args, **kwargs):
        super().detach_volume(context, connection_info, instance, mountpoint, *args, **kwargs)
        with self._state.lock:
            self._disconnect(instance.uuid, connection_info["serial"])
            self._state.save()

    def extend_volume(self, context, connection_info, instance, requested_size):
        with self._state.lock:
            device = self._state.servers[instance.uuid]["devices"].get(connection_info["serial"])
            if device:
                _losetup("--set-capacity", device["name"])

    def swap_volume(self, *args, **kwargs):
        """Data cannot be mirrored below a loop device: a volume in use is not migrated."""
        raise NotImplementedError

    def _connect(self, server_id, volume_id, path):
        devices = self._state.servers[server_id]["devices"]
        name = devices.get(volume_id, {}).get("name")
        # Each server has a device of its own, also of a volume that several servers share.
        if name is None or name not in _losetup("--noheadings", "--output=NAME", "--associated", path):
            (name,) = _losetup("--find", "--show", path)
        devices[volume_id] = {"path": path, "name": name}
        link = os.path.join(self._by_id(server_id), "virtio-" + volume_id[:SERIAL_LENGTH])
        part = link + ".part"
        if os.path.lexists(part):
            os.unlink(part)
        os.symlink(name, part)
        os.replace(part, link)

    def _disconnect(self, server_id, volume_id):
        device = self._state.servers[server_id]["devices"].pop(volume_id, None)
        if device is None:
            return
        try:
            os.unlink(os.path.join(self._by_id(server_id), "virtio-" + volume_id[:SERIAL_LENGTH]))
        except FileNotFoundError:
            pass
        if device["name"] in _losetup("--noheadings", "--output=NAME", "--associated", device["path"]):
            _losetup("--detach", device["name"])
