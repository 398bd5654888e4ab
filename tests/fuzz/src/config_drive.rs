// SPDX-License-Identifier: Apache-2.0
//! The config drive. Checks that the reader of a disk with Nova's label neither panics nor reads without end, and that it reports only
//! servers with a UUID.

use std::cell::Cell;
use std::io;

use cinder_cloud::InstanceMetadata;
use csi_host::config_drive::read_iso9660;

use crate::Target;

const SECTOR: usize = 2048;
/// An input has the beginning of each sector, because their ends are zero.
const PART: usize = 256;
/// The first sector with a descriptor.
const FIRST: usize = 16;
/// Sixteen descriptors, three directories, and the document.
const MOST_READ: usize = 16 * SECTOR + 3 * (256 << 10) + (1 << 20);

pub(crate) const TARGET: Target = Target {
    name: "config-drive",
    seeds: || vec![image("config-2", true), image("CONFIG-2", false), image("other", true)],
    words: &[
        "\x01CD001",
        "config-2",
        "OPENSTAC",
        "openstack",
        "LATEST",
        "latest",
        "META_DAT.JSO;1",
        "meta_data.json",
        "PX\x04\x01",
        "NM\x0e\x01\u{0}openstack",
        "CE\x1c\x01",
        "\x22\u{0}",
        "\u{0}\u{0}\u{0}\u{0}",
        "{\"uuid\":",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let mut disk = vec![0; FIRST * SECTOR];
    for part in bytes.chunks(PART) {
        disk.extend_from_slice(part);
        disk.resize(disk.len().next_multiple_of(SECTOR), 0);
    }
    let read = Cell::new(0);
    let at = |offset: u64, buffer: &mut [u8]| {
        read.set(read.get() + buffer.len());
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = disk.get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    let document = read_iso9660(&at);
    assert!(read.get() <= MOST_READ, "{} bytes of the disk were read", read.get());
    if let Ok(Some(Some(document))) = document
        && let Ok(metadata) = InstanceMetadata::from_document(&document)
    {
        assert!(metadata.instance_id.is_uuid());
    }
}

/// Returns a config drive in the layout of Nova's genisoimage, with or without the long names of Rock Ridge.
fn image(label: &str, long: bool) -> Vec<u8> {
    let document = r#"{"uuid":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","name":"worker-1"}"#;
    let mut descriptor = b"\x01CD001\x01\x00".to_vec();
    descriptor.resize(40, b' ');
    descriptor.extend(format!("{label:<32}").bytes());
    descriptor.resize(156, 0);
    descriptor.extend(record("\u{0}", None, 18, SECTOR));
    let directory = |own, name, long_name, sector, bytes| {
        let long_name = long.then_some(long_name);
        let own = [record("\u{0}", None, own, SECTOR), record("\u{1}", None, own, SECTOR)].concat();
        [own, record(name, long_name, sector, bytes)].concat()
    };
    let (place, latest) = (if long { "OPENSTAC" } else { "OPENSTACK" }, "LATEST");
    let name = if long { "META_DAT.JSO;1" } else { "META_DATA.JSON;1" };
    let parts = [
        descriptor,
        b"\xffCD001".to_vec(),
        directory(18, place, "openstack", 19, SECTOR),
        directory(19, latest, "latest", 20, SECTOR),
        directory(20, name, "meta_data.json", 21, document.len()),
        document.as_bytes().to_vec(),
    ];
    parts
        .into_iter()
        .flat_map(|mut part| {
            part.resize(PART, 0);
            part
        })
        .collect()
}

/// An entry of a directory.
fn record(name: &str, long: Option<&str>, sector: u8, bytes: usize) -> Vec<u8> {
    let size = u32::try_from(bytes).unwrap_or_default();
    let mut record = vec![0, 0, sector, 0, 0, 0, 0, 0, 0, sector];
    record.extend([size.to_le_bytes(), size.to_be_bytes()].concat());
    record.extend([0; 14]);
    record.push(u8::try_from(name.len()).unwrap_or_default());
    record.extend(name.bytes());
    if name.len().is_multiple_of(2) {
        record.push(0);
    }
    if let Some(long) = long {
        record.extend(b"PX\x04\x01NM");
        record.extend([u8::try_from(5 + long.len()).unwrap_or_default(), 1, 0]);
        record.extend(long.bytes());
    }
    record.resize(record.len().next_multiple_of(2), 0);
    record[0] = u8::try_from(record.len()).unwrap_or_default();
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_config_drives_have_a_document() {
        for (label, long) in [("config-2", true), ("config-2", false)] {
            let input = image(label, long);
            let at = |offset: u64, buffer: &mut [u8]| {
                let sector = usize::try_from(offset).map_err(io::Error::other)? / SECTOR - FIRST;
                let part = input.get(sector * PART..(sector + 1) * PART).unwrap_or_default();
                let length = part.len().min(buffer.len());
                buffer.fill(0);
                buffer[..length].copy_from_slice(&part[..length]);
                Ok(())
            };
            let document = read_iso9660(&at).expect("readable").flatten().expect("a document");
            assert!(InstanceMetadata::from_document(&document).is_ok());
        }
    }
}
