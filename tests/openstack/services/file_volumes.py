# SPDX-License-Identifier: Apache-2.0
"""A Cinder driver that keeps each volume and each snapshot in a sparse file."""

import os
import subprocess

from cinder import interface
from cinder.objects import fields
from cinder.volume import driver

GIB = 1 << 30
COPY_SECONDS = 300


@interface.volumedriver
class FileDriver(driver.VolumeDriver):
    """Thin volumes of one directory, which the option `volumes_dir` of the environment names."""

    VERSION = "1.0"
    CI_WIKI_NAME = "none"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.backend = self.configuration.safe_get("volume_backend_name")
        self.directory = os.path.join(os.environ["VOLUMES_DIR"], self.backend)

    def do_setup(self, context):
        os.makedirs(self.directory, exist_ok=True)

    def check_for_setup_error(self):
        pass

    def _path(self, thing):
        return os.path.join(self.directory, thing["name"])

    def _remove(self, thing):
        try:
            os.unlink(self._path(thing))
        except FileNotFoundError:
            pass

    def _copy(self, source, target):
        """Copies data and leaves holes, under another name until it is whole."""
        part = target + ".part"
        subprocess.run(["cp", "--sparse=auto", "--", source, part], check=True, timeout=COPY_SECONDS)
        os.rename(part, target)

    def create_volume(self, volume):
        with open(self._path(volume), "xb") as file:
            file.truncate(volume["size"] * GIB)

    def delete_volume(self, volume):
        self._remove(volume)

    def extend_volume(self, volume, new_size):
        os.truncate(self._path(volume), new_size * GIB)

    def create_snapshot(self, snapshot):
        self._copy(os.path.join(self.directory, snapshot["volume_name"]), self._path(snapshot))

    def delete_snapshot(self, snapshot):
        self._remove(snapshot)

    def create_volume_from_snapshot(self, volume, snapshot):
        self._copy(self._path(snapshot), self._path(volume))
        self.extend_volume(volume, volume["size"])

    def create_cloned_volume(self, volume, src_vref):
        self._copy(self._path(src_vref), self._path(volume))
        self.extend_volume(volume, volume["size"])

    def update_migrated_volume(self, context, volume, new_volume, original_volume_status):
        """The volume keeps its name after a migration: the file takes it."""
        os.rename(self._path(new_volume), self._path(volume))
        return {"_name_id": None, "provider_location": None}

    def retype(self, context, volume, new_type, diff, host):
        """Types of one backend differ in nothing that a file would know of."""
        return host["host"].split("#")[0] == volume["host"].split("#")[0]

    def create_group(self, context, group):
        return {"status": fields.GroupStatus.AVAILABLE}

    def delete_group(self, context, group, volumes):
        for volume in volumes:
            self._remove(volume)
        return {"status": fields.GroupStatus.DELETED}, [{"id": volume.id, "status": "deleted"} for volume in volumes]

    def update_group(self, context, group, add_volumes=None, remove_volumes=None):
        return None, None, None

    def create_group_snapshot(self, context, group_snapshot, snapshots):
        for snapshot in snapshots:
            self.create_snapshot(snapshot)
        status = fields.SnapshotStatus.AVAILABLE
        return {"status": status}, [{"id": snapshot.id, "status": status} for snapshot in snapshots]

    def delete_group_snapshot(self, context, group_snapshot, snapshots):
        for snapshot in snapshots:
            self._remove(snapshot)
        status = fields.SnapshotStatus.DELETED
        return {"status": status}, [{"id": snapshot.id, "status": status} for snapshot in snapshots]

    def _update_volume_stats(self):
        pool = {
            "pool_name": "pool",
            "total_capacity_gb": 10000,
            "free_capacity_gb": 9000,
            "provisioned_capacity_gb": 1,
            "max_over_subscription_ratio": "20.0",
            "reserved_percentage": 0,
            "thin_provisioning_support": True,
            "thick_provisioning_support": False,
            "QoS_support": True,
            "multiattach": True,
            "online_extend_support": True,
            "consistent_group_snapshot_enabled": True,
        }
        self._stats = {
            "volume_backend_name": self.backend,
            "vendor_name": "tests",
            "driver_version": self.VERSION,
            "storage_protocol": "file",
            "pools": [pool],
        }

    def ensure_export(self, context, volume):
        pass

    def create_export(self, context, volume, connector):
        pass

    def remove_export(self, context, volume):
        pass

    def initialize_connection(self, volume, connector):
        return {"driver_volume_type": "local", "data": {"device_path": self._path(volume)}}

    def terminate_connection(self, volume, connector, **kwargs):
        """cinder-backup empties the file that it restores to and leaves out zeros, those at the end, too: a device has its size."""
        if os.path.getsize(self._path(volume)) < volume["size"] * GIB:
            self.extend_volume(volume, volume["size"])
