// SPDX-License-Identifier: Apache-2.0
//! Reads configuration files. Their paths come from flags and from other files, so that they may refer to any kind of
//! file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Limit of a configuration file. A Secret has the same limit.
pub const LARGEST_CONFIG: u64 = 1 << 20;

/// Reads a configuration file: a regular file of at most 1 MiB.
///
/// Fails at once for other kinds of files, even if a read would block or not end. Follows links, because the files of a
/// mounted Secret are links.
pub fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    // Checks before the open, because opening a device may have effects: it rewinds a tape, and starts a watchdog.
    check_kind_and_size(&std::fs::metadata(path)?)?;
    let file = open_at_once(path)?;
    // The path may refer to another file by now.
    check_kind_and_size(&file.metadata()?)?;
    read_bounded(&file)
}

/// Opens a file for reading. A FIFO without a writer opens at once.
fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn check_kind_and_size(facts: &Metadata) -> io::Result<()> {
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if facts.len() > LARGEST_CONFIG {
        return Err(too_large());
    }
    Ok(())
}

/// Reads a configuration file as text.
pub fn read_config_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_config(path)?).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

fn read_bounded(file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // The file may have grown since the check.
    file.take(LARGEST_CONFIG + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_CONFIG {
        return Err(too_large());
    }
    Ok(content)
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {LARGEST_CONFIG} bytes"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn refusal(path: &Path) -> String {
        read_config(path).expect_err("refused").to_string()
    }

    #[test]
    fn files_other_than_regular_are_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        open_at_once(&fifo).expect("opened without a writer");
        for path in [fifo, socket, "/dev/zero".into(), folder.path().to_owned()] {
            assert_eq!(refusal(&path), "it is not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn size_is_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'x'; 1 << 20]).expect("written");
        assert_eq!(read_config(&path).expect("fits").len(), 1 << 20);
        std::fs::write(&path, vec![b'x'; (1 << 20) + 1]).expect("written");
        assert_eq!(refusal(&path), "it is larger than 1048576 bytes");
        let file = File::open(&path).expect("opened");
        assert!(read_bounded(&file).is_err(), "also where it has grown");
    }

    #[test]
    fn links_of_mounted_secrets_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("..2026");
        std::fs::create_dir(&data).expect("a folder");
        std::fs::write(data.join("cloud.conf"), "text").expect("written");
        symlink("..2026", folder.path().join("..data")).expect("a link");
        let path = folder.path().join("cloud.conf");
        symlink(PathBuf::from("..data/cloud.conf"), &path).expect("a link");
        assert_eq!(read_config_text(&path).expect("read"), "text");
    }

    #[test]
    fn refuses_binary_file_as_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        let error = read_config_text(&path).expect_err("binary");
        assert_eq!(error.to_string(), "it is not text in UTF-8");
    }
}
