// SPDX-License-Identifier: Apache-2.0
//! Contents of a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::damage::Damage;
use super::filesystem::Filesystem;
use super::lock;

/// Block size of stored contents.
pub(super) const BLOCK: usize = 4096;

/// Offset of pods' data, behind the area that mkfs writes in this model.
const DATA: u64 = 8 << 20;

/// Prefix of a block with pods' data, followed by the UUID of its file system (or zeros) and the key.
const TAG: &[u8; 16] = b"the pods' data: ";

/// Blocks by number. A missing block is zero.
pub(super) type Blocks = BTreeMap<u64, Box<[u8]>>;

/// Readable bytes: of a medium, or of a disk including its node's unwritten cache.
pub(super) trait Readable {
    /// Reads at `offset`.
    fn read_at(&self, buffer: &mut [u8], offset: u64);
}

/// Contents of a volume. It is sparse: unwritten parts are zero. Nodes with an attached volume share one; a snapshot or
/// a clone is a [`Medium::copy`]. The attached disk, not the medium, has a size.
#[derive(Debug, Default)]
pub struct Medium(Mutex<Contents>);

#[derive(Debug, Clone, Default)]
struct Contents {
    blocks: Blocks,
    holds_data: bool,
    was_mounted: bool,
    /// Whether it was delivered with foreign content.
    is_foreign: bool,
    damage: Option<Damage>,
    writers: BTreeSet<(String, u64)>,
}

impl Medium {
    /// Creates the medium of a new volume.
    pub fn blank() -> Arc<Self> {
        Arc::default()
    }

    /// Copies the bytes for another volume.
    #[must_use]
    pub fn copy(&self) -> Arc<Self> {
        let contents = Contents {
            writers: BTreeSet::new(),
            ..lock(&self.0).clone()
        };
        Arc::new(Self(Mutex::new(contents)))
    }

    /// Whether a pod has ever written to it or to the source of its copy.
    pub fn holds_data(&self) -> bool {
        lock(&self.0).holds_data
    }

    /// Whether a format would be a violation: it has data, foreign content, or a file system that was mounted before.
    pub fn is_precious(&self) -> bool {
        let contents = lock(&self.0);
        contents.holds_data || contents.was_mounted || contents.is_foreign
    }

    /// Whether a node can mount it: it is blank, or has a complete file system that needs no repair by an
    /// administrator.
    pub fn is_mountable(&self) -> bool {
        let is_whole = || self.filesystem().is_some_and(|found| !found.in_progress);
        (self.is_blank() || is_whole()) && !self.is_foreign() && self.damage() != Some(Damage::Uncorrected)
    }

    /// Whether it was never written.
    pub(super) fn is_blank(&self) -> bool {
        lock(&self.0).blocks.is_empty()
    }

    /// Whether it was delivered with foreign content.
    pub fn is_foreign(&self) -> bool {
        lock(&self.0).is_foreign
    }

    pub(super) fn set_foreign(&self) {
        lock(&self.0).is_foreign = true;
    }

    /// Returns the damage of its file system.
    pub(super) fn damage(&self) -> Option<Damage> {
        lock(&self.0).damage
    }

    pub(super) fn set_damage(&self, damage: Option<Damage>) {
        lock(&self.0).damage = damage;
    }

    /// Repairs the file system, as an administrator does.
    pub fn repair(&self) {
        self.set_damage(None);
    }

    /// Reads at `offset`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) {
        lock(&self.0).read_at(buffer, offset);
    }

    /// Returns the numbers of the non-zero blocks in this range.
    pub(super) fn blocks(&self, among: Range<u64>) -> Vec<u64> {
        lock(&self.0).blocks.range(among).map(|(number, _)| *number).collect()
    }

    /// Whether any block has this prefix.
    pub(super) fn has_block(&self, beginning: &[u8]) -> bool {
        let contents = lock(&self.0);
        contents.blocks.values().any(|bytes| bytes.starts_with(beginning))
    }

    /// Writes unconditionally, as an administrator or another driver may.
    pub fn write_at(&self, bytes: &[u8], offset: u64) {
        lock(&self.0).write_at(bytes, offset);
    }

    pub(super) fn filesystem(&self) -> Option<Filesystem> {
        Filesystem::detect(self)
    }

    /// Records a mount. Returns the other node that has mounted the file system for writing, if any.
    pub(super) fn mounted(&self, node: &str, superblock: u64, read_only: bool) -> Option<String> {
        let mut contents = lock(&self.0);
        contents.was_mounted = true;
        if read_only {
            return None;
        }
        let other = contents.writers.iter().find(|(writer, _)| writer != node);
        let other = other.map(|(writer, _)| writer.clone());
        contents.writers.insert((node.to_owned(), superblock));
        other
    }

    /// Records that this mount does not write any more: it ended, or its disk was removed, or the node ended.
    pub(super) fn unmounted(&self, node: &str, superblock: u64) {
        lock(&self.0).writers.remove(&(node.to_owned(), superblock));
    }

    /// Records that a pod has written, even if the data have not reached the medium.
    pub(super) fn holds_data_now(&self) {
        lock(&self.0).holds_data = true;
    }

    /// Writes a key of a pod. `owner` is the UUID of the file system, or zeros.
    pub(super) fn write_key(&self, owner: [u8; 16], key: u64) {
        let mut contents = lock(&self.0);
        contents.holds_data = true;
        if contents.keys(owner).contains(&key) {
            return;
        }
        let first = DATA / BLOCK as u64;
        let taken = contents.blocks.range(first..).map(|(index, _)| *index);
        // The first free block.
        let free = taken
            .zip(first..)
            .find(|(index, expected)| index != expected)
            .map(|(_, expected)| expected);
        let free = free.unwrap_or(first + contents.blocks.range(first..).count() as u64);
        let block = [TAG.as_slice(), &owner, &key.to_be_bytes()].concat();
        contents.write_at(&block, free * BLOCK as u64);
    }

    /// Returns the keys that pods have written.
    pub(super) fn keys(&self, owner: [u8; 16]) -> BTreeSet<u64> {
        lock(&self.0).keys(owner)
    }
}

impl Contents {
    fn read_at(&self, buffer: &mut [u8], offset: u64) {
        buffer.fill(0);
        overlay(&self.blocks, buffer, offset);
    }

    fn write_at(&mut self, mut bytes: &[u8], mut offset: u64) {
        while !bytes.is_empty() {
            let (index, within) = (offset / BLOCK as u64, index_of(offset % BLOCK as u64));
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - within));
            let block = self
                .blocks
                .entry(index)
                .or_insert_with(|| vec![0; BLOCK].into_boxed_slice());
            if let Some(place) = block.get_mut(within..within + part.len()) {
                place.copy_from_slice(part);
            }
            if block.iter().all(|byte| *byte == 0) {
                self.blocks.remove(&index);
            }
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    fn keys(&self, owner: [u8; 16]) -> BTreeSet<u64> {
        let prefix = [TAG.as_slice(), &owner].concat();
        let keys = self.blocks.range(DATA / BLOCK as u64..).filter_map(|(_, bytes)| {
            let key = bytes.strip_prefix(prefix.as_slice())?.first_chunk::<8>()?;
            Some(u64::from_be_bytes(*key))
        });
        keys.collect()
    }
}

impl Readable for Medium {
    fn read_at(&self, buffer: &mut [u8], offset: u64) {
        Self::read_at(self, buffer, offset);
    }
}

/// Copies the blocks into a buffer that was read at `offset`.
pub(super) fn overlay(blocks: &Blocks, buffer: &mut [u8], offset: u64) {
    let end = offset + buffer.len() as u64;
    let block = BLOCK as u64;
    for (index, bytes) in blocks.range(offset / block..end.div_ceil(block)) {
        let start = index * block;
        let (from, to) = (start.max(offset), (start + block).min(end));
        let part = |from: u64, to: u64, base: u64| index_of(from - base)..index_of(to - base);
        if let (Some(to), Some(from)) = (buffer.get_mut(part(from, to, offset)), bytes.get(part(from, to, start))) {
            to.copy_from_slice(from);
        }
    }
}

/// Converts an offset to an index. An offset that does not fit is out of range.
pub(super) fn index_of(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
