// SPDX-License-Identifier: Apache-2.0
//! Reads one file of an iso9660 image (ECMA-119) with the long names of Rock Ridge. Every size is bounded.

use std::io;

const SECTOR: u64 = 2048;
/// Sector of the first volume descriptor. An image has only a few descriptors.
const FIRST_DESCRIPTOR: u64 = 16;
const MOST_DESCRIPTORS: u64 = 16;
/// Limit of the size of a directory. A directory of a config drive has a handful of entries.
const LARGEST_DIRECTORY: usize = 256 << 10;

/// Fills the buffer from an offset of the device.
pub(super) type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// Position of a file or directory on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    sector: u32,
    bytes: u32,
}

/// An iso9660 volume, from its primary descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volume {
    label: String,
    root: Extent,
}

impl Volume {
    /// Reads the primary descriptor; `None` if the device is not an iso9660.
    pub(super) fn open(at: ReadAt<'_>) -> io::Result<Option<Self>> {
        let mut descriptor = [0; 2048];
        for index in 0..MOST_DESCRIPTORS {
            match at((FIRST_DESCRIPTOR + index) * SECTOR, &mut descriptor) {
                Ok(()) => {}
                // The device is too small for an iso9660.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            if descriptor.get(1..6) != Some(b"CD001") {
                return Ok(None);
            }
            match descriptor.first() {
                Some(1) => {
                    let label = descriptor.get(40..72).unwrap_or_default();
                    let root = descriptor
                        .get(156..190)
                        .and_then(parse_extent)
                        .ok_or_else(damaged_error)?;
                    let label = String::from_utf8_lossy(label).trim_end_matches([' ', '\0']).to_owned();
                    return Ok(Some(Self { label, root }));
                }
                Some(255) => break,
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Reads the file at `path`; fails if it has more than `largest` bytes.
    pub(super) fn read(&self, at: ReadAt<'_>, path: &[&str], largest: usize) -> io::Result<Vec<u8>> {
        let mut place = self.root;
        for name in path {
            let directory = read_extent(at, place, LARGEST_DIRECTORY)?;
            place = find_entry(&directory, name).ok_or_else(|| {
                let missing = format!("it has no {}", path.join("/"));
                io::Error::new(io::ErrorKind::NotFound, missing)
            })?;
        }
        read_extent(at, place, largest)
    }
}

fn damaged_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its iso9660 is damaged")
}

fn read_extent(at: ReadAt<'_>, place: Extent, largest: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(place.bytes).ok().filter(|length| *length <= largest);
    let mut bytes = vec![0; length.ok_or_else(damaged_error)?];
    at(u64::from(place.sector) * SECTOR, &mut bytes)?;
    Ok(bytes)
}

/// Decodes the position in a directory record.
fn parse_extent(record: &[u8]) -> Option<Extent> {
    let little = |from: usize| Some(u32::from_le_bytes(record.get(from..from + 4)?.try_into().ok()?));
    Some(Extent {
        sector: little(2)?,
        bytes: little(10)?,
    })
}

/// Finds the directory entry with this name. Records do not cross sector boundaries; the rest of a sector is zero.
fn find_entry(directory: &[u8], name: &str) -> Option<Extent> {
    for sector in directory.chunks(2048) {
        let mut rest = sector;
        while let Some(length) = rest
            .first()
            .map(|length| usize::from(*length))
            .filter(|length| *length > 33)
        {
            let record = rest.get(..length)?;
            if is_named(record, name) {
                return parse_extent(record);
            }
            rest = rest.get(length..)?;
        }
    }
    None
}

/// Whether a record has this name, in Rock Ridge or in the standard (upper case with a version suffix).
fn is_named(record: &[u8], name: &str) -> bool {
    let Some(length) = record.get(32).map(|length| usize::from(*length)) else {
        return false;
    };
    let Some(found_name) = record.get(33..33 + length) else {
        return false;
    };
    let plain = found_name.split(|byte| *byte == b';').next().unwrap_or_default();
    let plain = plain.strip_suffix(b".").unwrap_or(plain);
    if plain.eq_ignore_ascii_case(name.as_bytes()) {
        return true;
    }
    // The system use area begins at an even offset.
    let mut rest = record
        .get(33 + length + usize::from(length % 2 == 0)..)
        .unwrap_or_default();
    let mut long = Vec::new();
    while let [first, second, length, ..] = rest {
        let Some(field) = rest.get(..usize::from(*length)).filter(|field| field.len() >= 4) else {
            break;
        };
        if [*first, *second] == *b"NM" {
            long.extend_from_slice(field.get(5..).unwrap_or_default());
        }
        rest = rest.get(field.len()..).unwrap_or_default();
    }
    long == name.as_bytes()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn both(number: u32) -> Vec<u8> {
        [number.to_le_bytes(), number.to_be_bytes()].concat()
    }

    fn record(name: &[u8], long: Option<&str>, sector: u32, bytes: usize) -> Vec<u8> {
        let mut record = vec![0, 0];
        record.extend(both(sector));
        record.extend(both(u32::try_from(bytes).expect("small")));
        record.extend([0; 14]);
        record.push(u8::try_from(name.len()).expect("short"));
        record.extend(name);
        if name.len().is_multiple_of(2) {
            record.push(0);
        }
        if let Some(long) = long {
            record.extend([b"PX\x04\x01", &b"NM"[..]].concat());
            record.extend([u8::try_from(5 + long.len()).expect("short"), 1, 0]);
            record.extend(long.as_bytes());
        }
        if record.len() % 2 == 1 {
            record.push(0);
        }
        record[0] = u8::try_from(record.len()).expect("short");
        record
    }

    /// Builds a config drive like Nova's genisoimage: short names in upper case and long names.
    pub(in super::super) fn image(label: &str, document: &str) -> Vec<u8> {
        let mut image = vec![0; 32 * 2048];
        let mut put = |sector: usize, bytes: &[u8]| {
            image[sector * 2048..sector * 2048 + bytes.len()].copy_from_slice(bytes);
        };
        let mut descriptor = vec![0; 2048];
        descriptor[..6].copy_from_slice(b"\x01CD001");
        descriptor[40..72].fill(b' ');
        descriptor[40..40 + label.len()].copy_from_slice(label.as_bytes());
        let root = record(&[0], None, 20, 2048);
        descriptor[156..156 + root.len()].copy_from_slice(&root);
        put(15 + 1, &descriptor);
        put(17, b"\xffCD001");
        let dots = |own: u32| [record(&[0], None, own, 2048), record(&[1], None, own, 2048)].concat();
        put(
            20,
            &[dots(20), record(b"OPENSTAC", Some("openstack"), 21, 2048)].concat(),
        );
        put(
            21,
            &[
                dots(21),
                record(b"2012_08", None, 22, 2048),
                record(b"LATEST", None, 22, 2048),
            ]
            .concat(),
        );
        put(
            22,
            &[
                dots(22),
                record(b"META_DAT.JSO;1", Some("meta_data.json"), 23, document.len()),
            ]
            .concat(),
        );
        put(23, document.as_bytes());
        image
    }

    fn at(image: &[u8]) -> impl Fn(u64, &mut [u8]) -> io::Result<()> + '_ {
        |offset, buffer| {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let bytes = image.get(from..).and_then(|rest| rest.get(..buffer.len()));
            buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    const PATH: [&str; 3] = ["openstack", "latest", "meta_data.json"];

    #[test]
    fn finds_file_by_long_and_short_name() {
        let image = image("config-2", r#"{"uuid":"x"}"#);
        let read = at(&image);
        let volume = Volume::open(&read).expect("it can be read").expect("it is one");
        assert_eq!(volume.label(), "config-2");
        let text = volume.read(&read, &PATH, 100).expect("it is there");
        assert_eq!(text, br#"{"uuid":"x"}"#);
        assert!(volume.read(&read, &PATH, 5).is_err(), "too large");
        assert!(volume.read(&read, &["openstack", "nowhere"], 100).is_err());
        assert!(volume.read(&read, &["OPENSTAC", "LATEST", "META_DAT.JSO"], 100).is_ok());
    }

    proptest! {
        #[test]
        fn reader_survives_damaged_image(damage in proptest::collection::vec((0_usize..24 * 2048, any::<u8>()), 1..200)) {
            let mut image = image("config-2", "{}");
            for (place, byte) in damage {
                image[place.max(16 * 2048)] = byte;
            }
            let read = at(&image);
            if let Ok(Some(volume)) = Volume::open(&read) {
                drop(volume.read(&read, &PATH, 1000));
            }
        }
    }
}
