// SPDX-License-Identifier: Apache-2.0
//! Unix sockets that are private from their creation, and that never replace a socket in use.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_fd, connect, listen, socket_with,
};
use thiserror::Error;
use tokio::net::UnixListener;

/// Longest path of a unix socket on Linux, in bytes.
const LONGEST_PATH: usize = 107;
const BACKLOG: i32 = 128;

/// Reasons why a socket could not be created.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The path has no file name.
    #[error("{} is no path of a socket: name a file", path.display())]
    Name { path: PathBuf },
    /// The path does not fit into a socket address.
    #[error("socket path {} is too long: the directory and the name may have {longest} bytes together", path.display())]
    TooLong {
        path: PathBuf,
        /// Limit of the path in bytes.
        longest: usize,
    },
    /// A file that is not a socket exists at the path.
    #[error("{} exists and is no socket: remove it, or choose another path", path.display())]
    Occupied { path: PathBuf },
    /// Another process serves the socket.
    #[error("socket {} is served by another process: end that one first, or choose another path", path.display())]
    InUse { path: PathBuf },
    /// The path could not be examined.
    #[error("cannot look at {}: {source}", path.display())]
    Inspect { path: PathBuf, source: io::Error },
    /// The socket could not be created.
    #[error("cannot make the socket {}: {source}", path.display())]
    Make { path: PathBuf, source: io::Error },
}

/// Listens on `path` with permission bits `mode`.
///
/// The socket is bound to a temporary path in the same directory, gets its mode, and is then renamed. Clients never see
/// a socket that does not respond yet, or that has more permissions than requested. A process that watches the
/// directory sees one event: the kubelet ignores names that begin with a dot.
///
/// Replaces the stale socket of a process that has ended. Fails without a change if the socket is in use, or if the
/// path is not a socket.
///
/// Never blocks. Must be called inside a tokio runtime. The socket is not removed when the listener is dropped; the
/// next start replaces it.
pub fn bind(path: &Path, mode: u32) -> Result<UnixListener, SocketError> {
    let temporary = temporary_name(path)?;
    check_free_or_stale(path)?;
    check_free_or_stale(&temporary)?;
    let create_error = |source: io::Error| SocketError::Make {
        path: path.to_owned(),
        source,
    };
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(create_error(error)),
        _ => {}
    }
    let listener = listen_on(&temporary, mode).and_then(|listener| {
        fs::rename(&temporary, path)?;
        Ok(listener)
    });
    listener.map_err(|error| {
        // Best effort. The next start replaces the stale file.
        drop(fs::remove_file(&temporary));
        create_error(error)
    })
}

/// Returns a hidden name in the same directory. It is the same for every process, so that the next process finds the
/// stale file of a killed one.
fn temporary_name(path: &Path) -> Result<PathBuf, SocketError> {
    let Some(name) = path.file_name() else {
        return Err(SocketError::Name { path: path.to_owned() });
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    let temporary = path.with_file_name(hidden);
    if temporary.as_os_str().as_bytes().len() > LONGEST_PATH {
        return Err(SocketError::TooLong {
            path: path.to_owned(),
            longest: LONGEST_PATH - 1,
        });
    }
    Ok(temporary)
}

fn check_free_or_stale(path: &Path) -> Result<(), SocketError> {
    let inspect = |source: io::Error| SocketError::Inspect {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(inspect(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::Occupied { path: path.to_owned() });
        }
        Ok(_socket) => {}
    }
    let probe = new_socket().map_err(inspect)?;
    let address = SocketAddrUnix::new(path).map_err(|error| inspect(error.into()))?;
    match connect(&probe, &address).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // The ending process removed the socket.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog shows that the socket is in use.
        Ok(()) => Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) => Err(inspect(error)),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn listen_on(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = new_socket()?;
    // Linux creates the file of a socket with the mode that the socket has when it is bound. It never has another mode.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    bind_fd(&socket, &SocketAddrUnix::new(path)?)?;
    // The umask may have removed permissions.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::net::UnixStream;

    use super::*;

    fn directory() -> TempDir {
        tempfile::tempdir().expect("makes a directory")
    }

    fn names(directory: &TempDir) -> Vec<OsString> {
        fs::read_dir(directory.path())
            .expect("lists")
            .map(|entry| entry.expect("lists").file_name())
            .collect()
    }

    #[tokio::test]
    async fn socket_has_requested_mode() {
        let directory = directory();
        for (name, mode) in [("private", 0o600), ("group", 0o660), ("open", 0o777)] {
            let path = directory.path().join(name);
            let listener = bind(&path, mode).expect("binds");
            let found = fs::metadata(&path).expect("is there").permissions().mode() & 0o7777;
            assert_eq!(found, mode, "{name}: {found:o}");
            let (client, server) = tokio::join!(UnixStream::connect(&path), listener.accept());
            assert!(client.is_ok() && server.is_ok(), "{name}");
        }
        assert_eq!(names(&directory).len(), 3, "no temporary name is left");
    }

    #[test]
    fn socket_is_private_when_bound() {
        let directory = directory();
        let path = directory.path().join("s");
        let socket = new_socket().expect("makes");
        fchmod(&socket, Mode::from_raw_mode(0o600)).expect("changes the mode");
        bind_fd(&socket, &SocketAddrUnix::new(&path).expect("fits")).expect("binds");
        assert_eq!(
            fs::metadata(&path).expect("is there").permissions().mode() & 0o7777,
            0o600
        );
    }

    #[tokio::test]
    async fn replaces_stale_socket() {
        let directory = directory();
        let path = directory.path().join("csi.sock");
        drop(bind(&path, 0o600).expect("binds"));
        // A process was killed between bind and rename.
        drop(std::os::unix::net::UnixListener::bind(directory.path().join(".csi.sock")).expect("binds"));
        let listener = bind(&path, 0o600).expect("replaces the stale one");
        let (client, server) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(client.is_ok() && server.is_ok());
        assert_eq!(names(&directory), ["csi.sock"]);
    }

    #[tokio::test]
    async fn refuses_socket_in_use() {
        let directory = directory();
        let path = directory.path().join("csi.sock");
        let first = bind(&path, 0o600).expect("binds");
        let error = bind(&path, 0o600).expect_err("is served");
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        let (client, server) = tokio::join!(UnixStream::connect(&path), first.accept());
        assert!(client.is_ok() && server.is_ok(), "the first one still answers");
    }

    #[tokio::test]
    async fn refuses_path_of_file() {
        let directory = directory();
        let path = directory.path().join("csi.sock");
        fs::write(&path, "precious").expect("writes");
        let error = bind(&path, 0o600).expect_err("is no socket");
        assert!(matches!(error, SocketError::Occupied { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "precious");
    }

    #[tokio::test]
    async fn long_path_error_names_limit() {
        let path = Path::new("/tmp").join("x".repeat(103));
        let error = bind(&path, 0o600).expect_err("does not fit");
        assert!(
            matches!(error, SocketError::TooLong { .. }) && error.to_string().contains("106"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn missing_directory_error_names_path() {
        let directory = directory();
        let path = directory.path().join("missing").join("csi.sock");
        let error = bind(&path, 0o600).expect_err("cannot be made").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}
