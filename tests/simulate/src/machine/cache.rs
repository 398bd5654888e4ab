// SPDX-License-Identifier: Apache-2.0
//! The kernel's page cache of a block device. A write is durable after a flush, after the last close, or some time
//! later. Until then, a crash of the node or a removal of the disk loses it.

use std::collections::BTreeSet;

use super::medium::{BLOCK, Blocks, Readable, index_of, overlay};
use super::state::Disk;

/// The owner of data that pods write to a raw device.
pub(super) const NO_FILESYSTEM: [u8; 16] = [0; 16];

/// Blocks that are not written yet.
#[derive(Debug, Default)]
pub(super) struct PageCache {
    blocks: Blocks,
    /// Keys that pods have written.
    keys: BTreeSet<u64>,
}

impl Readable for Disk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) {
        self.medium.read_at(buffer, offset);
        overlay(&self.cache.blocks, buffer, offset);
    }
}

impl Disk {
    pub(super) fn write_at(&mut self, mut bytes: &[u8], mut offset: u64) {
        let size = BLOCK as u64;
        while !bytes.is_empty() {
            let (number, within) = (offset / size, index_of(offset % size));
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - within));
            let medium = &self.medium;
            let page = self.cache.blocks.entry(number).or_insert_with(|| {
                let mut page = vec![0; BLOCK];
                medium.read_at(&mut page, number * size);
                page.into_boxed_slice()
            });
            if let Some(place) = page.get_mut(within..within + part.len()) {
                place.copy_from_slice(part);
            }
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    /// Writes zeros to whole blocks. Blocks of zeros take no memory.
    pub(super) fn clear(&mut self, from: u64, to: u64) {
        let size = BLOCK as u64;
        let among = from.div_ceil(size)..(to / size).max(from.div_ceil(size));
        let mut numbers = self.medium.blocks(among.clone());
        numbers.extend(self.cache.blocks.range(among).map(|(number, _)| *number));
        let zero = || vec![0; BLOCK].into_boxed_slice();
        self.cache
            .blocks
            .extend(numbers.into_iter().map(|number| (number, zero())));
    }

    /// Caches a write of a pod to the raw device without `fsync`.
    pub(super) fn cache_key(&mut self, key: u64) {
        self.cache.keys.insert(key);
    }

    /// Returns the keys that pods have written to the device and the kernel has not.
    pub(super) fn cached_keys(&self) -> &BTreeSet<u64> {
        &self.cache.keys
    }

    /// Writes all blocks to the storage.
    pub(super) fn flush(&mut self) {
        self.lose_cache(|| true);
    }

    /// Drops writes that are not durable, except for a random part.
    pub(super) fn lose_cache(&mut self, mut is_written: impl FnMut() -> bool) {
        for (number, page) in std::mem::take(&mut self.cache.blocks) {
            if is_written() {
                self.medium.write_at(&page, number * BLOCK as u64);
            }
        }
        for key in std::mem::take(&mut self.cache.keys) {
            if is_written() {
                self.medium.write_key(NO_FILESYSTEM, key);
            }
        }
    }
}
