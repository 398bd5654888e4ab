// SPDX-License-Identifier: Apache-2.0
//! The files of the registration: the socket, the link, and a note with the response that the link was created for.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use csi_kit::socket::SocketError;
use csi_proto::csi::v1::NodeGetInfoResponse;
use csi_sources::files::read_config;
use thiserror::Error;

use super::RegistrationError;

/// The maximum path length of a unix socket on Linux, in bytes.
const LONGEST_PATH: usize = 107;

/// Errors of the files of the registration.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The kubelet's directory is missing.
    #[error("{} is not there: is --kubelet-dir the kubelet's --root-dir, and is it mounted into the driver's container?", path.display())]
    NoRegistry { path: PathBuf },
    /// A file could not be created, read or removed.
    #[error("cannot {what} {}: {source}", path.display())]
    Access {
        /// The verb, such as `make` or `remove`.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file that the driver did not create has the name of the link.
    #[error("{} exists and is no symbolic link: another program registers this driver; turn one of the two off", path.display())]
    Foreign { path: PathBuf },
    /// The socket could not be bound.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The thread of the system calls panicked.
    #[error("internal error: a task of the driver panicked (see its log)")]
    Lost,
}

/// The result of [`Files::link`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The link was created or replaced, and the kubelet sends GetInfo.
    Created,
    /// The link is correct.
    Valid,
    /// The socket is missing, whatever the state of the link.
    SocketLost,
}

/// The paths of the registration.
#[derive(Debug, Clone)]
pub(super) struct Files {
    registry: PathBuf,
    link: PathBuf,
    /// The target of the link. It is relative, because the kubelet may see its directory under another path.
    target: PathBuf,
    socket: PathBuf,
    note: PathBuf,
    /// The socket of the node-driver-registrar sidecar.
    sidecar: PathBuf,
}

impl Files {
    pub(super) fn new(kubelet_dir: &Path, driver_name: &str) -> Result<Self, RegistrationError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if driver_name.is_empty() || driver_name.starts_with('.') || !driver_name.chars().all(plain) {
            return Err(RegistrationError::DriverName {
                driver_name: driver_name.to_owned(),
            });
        }
        let registry = kubelet_dir.join("plugins_registry");
        let plugin = kubelet_dir.join("plugins").join(driver_name);
        let link = registry.join(format!("{driver_name}@reg.sock"));
        let length = link.as_os_str().as_bytes().len();
        if length > LONGEST_PATH {
            return Err(RegistrationError::TooLong {
                path: link,
                over: length - LONGEST_PATH,
            });
        }
        Ok(Self {
            link,
            target: Path::new("../plugins").join(driver_name).join("reg.sock"),
            socket: plugin.join("reg.sock"),
            note: plugin.join("registration"),
            sidecar: registry.join(format!("{driver_name}-reg.sock")),
            registry,
        })
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Creates the directory of the socket and removes the stale socket of a killed sidecar.
    ///
    /// Returns `true` if the socket is missing, in which case any link was dangling.
    pub(super) fn prepare(&self) -> Result<bool, FilesError> {
        if !self.registry.is_dir() {
            return Err(FilesError::NoRegistry {
                path: self.registry.clone(),
            });
        }
        if let Some(directory) = self.socket.parent() {
            fs::create_dir_all(directory).map_err(access_error("make", directory))?;
        }
        // The kubelet refuses a second socket of one driver while the first exists, even if no process serves it.
        let is_socket = fs::symlink_metadata(&self.sidecar).is_ok_and(|metadata| metadata.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(&self.sidecar).is_err_and(refused) {
            tracing::info!(socket = %self.sidecar.display(), "removing the socket of a registrar that is gone");
            remove(&self.sidecar)?;
        }
        exists(&self.socket).map(|exists| !exists)
    }

    /// Creates the link if it is missing or wrong, if it was created for another response, or if `renew` is set.
    pub(super) fn link(&self, answer: &str, renew: bool) -> Result<LinkState, FilesError> {
        if !exists(&self.socket)? {
            return Ok(LinkState::SocketLost);
        }
        let is_right = match fs::symlink_metadata(&self.link) {
            Ok(metadata) if metadata.is_symlink() => {
                fs::read_link(&self.link).map_err(access_error("read", &self.link))? == self.target
            }
            Ok(_) => {
                return Err(FilesError::Foreign {
                    path: self.link.clone(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(access_error("look at", &self.link)(error)),
        };
        // Without a note, the response counts as changed. A note that cannot be read is retried later: an unnecessary
        // replacement removes the driver from CSINode for a moment.
        let same_answer = match read_config(&self.note) {
            Ok(noted) => noted == answer.as_bytes(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(access_error("read", &self.note)(error)),
        };
        if is_right && same_answer && !renew {
            return Ok(LinkState::Valid);
        }
        // The kubelet ignores names that begin with a dot, and treats a rename as a new socket.
        let draft = self
            .registry
            .join(format!(".{}", self.link.file_name().unwrap_or_default().display()));
        remove(&draft)?;
        symlink(&self.target, &draft).map_err(access_error("make", &draft))?;
        fs::rename(&draft, &self.link).map_err(access_error("make", &self.link))?;
        // The note is written last, so that a crash in between only causes one more replacement.
        self.write_note(answer)?;
        Ok(LinkState::Created)
    }

    fn write_note(&self, answer: &str) -> Result<(), FilesError> {
        let draft = self.note.with_extension("new");
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(answer.as_bytes())?;
            file.sync_all()
        });
        written.map_err(access_error("write", &draft))?;
        fs::rename(&draft, &self.note).map_err(access_error("write", &self.note))
    }

    /// Removes the files. The link is removed first, because the kubelet reacts to that.
    pub(super) fn withdraw(&self) -> Result<(), FilesError> {
        [&self.link, &self.socket, &self.note]
            .into_iter()
            .try_for_each(|path| remove(path))
    }
}

/// Renders the response of NodeGetInfo and the CSI socket. Equal responses give equal texts.
pub(super) fn render(info: &NodeGetInfoResponse, csi_socket: &Path) -> String {
    let mut text = format!(
        "socket {}\nnode {}\nvolumes {}\n",
        csi_socket.display(),
        info.node_id,
        info.max_volumes_per_node
    );
    for (key, value) in info.accessible_topology.iter().flat_map(|topology| &topology.segments) {
        text.extend(["segment ", key, "=", value, "\n"]);
    }
    text
}

/// Runs system calls outside the threads of the runtime.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, FilesError> {
    tokio::task::spawn_blocking(call).await.unwrap_or(Err(FilesError::Lost))
}

fn exists(path: &Path) -> Result<bool, FilesError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(access_error("look at", path)(error)),
    }
}

fn remove(path: &Path) -> Result<(), FilesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(access_error("remove", path)(error)),
        _ => Ok(()),
    }
}

fn access_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FilesError {
    let path = path.to_owned();
    move |source| FilesError::Access { what, path, source }
}
