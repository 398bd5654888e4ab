// SPDX-License-Identifier: Apache-2.0
//! The socket, the link and the note of what the link was made with.

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

/// Longest path of a unix socket on Linux, in bytes.
const LONGEST_PATH: usize = 107;

/// Why a file of the registration is not as it should be.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The kubelet's directory is not there.
    #[error("{} is not there: is --kubelet-dir the kubelet's --root-dir, and is it mounted into the driver's container?", path.display())]
    NoRegistry { path: PathBuf },
    /// A file could not be made, read or removed.
    #[error("cannot {what} {}: {source}", path.display())]
    Access {
        /// `make`, `remove` …
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Something that this driver did not make has the link's name.
    #[error("{} exists and is no symbolic link: another program registers this driver; turn one of the two off", path.display())]
    Foreign { path: PathBuf },
    /// The socket could not be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The thread for the system calls was lost.
    #[error("internal error: a task of the driver panicked (see its log)")]
    Lost,
}

/// What [`Files::link`] found or did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It was made, or made anew: the kubelet asks.
    Made,
    /// It was there and right.
    Stands,
    /// Link or not, the socket is gone.
    SocketLost,
}

/// Where everything is.
#[derive(Debug, Clone)]
pub(super) struct Files {
    registry: PathBuf,
    link: PathBuf,
    /// What the link says: relative, because the kubelet may see its directory under another path.
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

    /// Makes the socket's directory and clears away what a killed sidecar left. `true` if there is no socket, which left
    /// any link dangling.
    pub(super) fn prepare(&self) -> Result<bool, FilesError> {
        if !self.registry.is_dir() {
            return Err(FilesError::NoRegistry {
                path: self.registry.clone(),
            });
        }
        if let Some(directory) = self.socket.parent() {
            fs::create_dir_all(directory).map_err(access("make", directory))?;
        }
        // The kubelet refuses a second socket of one driver for as long as the first is there, be it dead or not.
        let is_socket = fs::symlink_metadata(&self.sidecar).is_ok_and(|metadata| metadata.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(&self.sidecar).is_err_and(refused) {
            tracing::info!(socket = %self.sidecar.display(), "removing the socket of a registrar that is gone");
            remove(&self.sidecar)?;
        }
        exists(&self.socket).map(|there| !there)
    }

    /// Makes the link if it is absent or wrong, was made with another answer, or is to be renewed.
    pub(super) fn link(&self, answer: &str, renew: bool) -> Result<Link, FilesError> {
        if !exists(&self.socket)? {
            return Ok(Link::SocketLost);
        }
        let is_right = match fs::symlink_metadata(&self.link) {
            Ok(metadata) if metadata.is_symlink() => {
                fs::read_link(&self.link).map_err(access("read", &self.link))? == self.target
            }
            Ok(_) => {
                return Err(FilesError::Foreign {
                    path: self.link.clone(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(access("look at", &self.link)(error)),
        };
        // Without a note the answer counts as another one. A note that cannot be read now is read later: to make the link
        // anew for nothing takes the node's CSINode entry away for a moment.
        let same_answer = match read_config(&self.note) {
            Ok(noted) => noted == answer.as_bytes(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(access("read", &self.note)(error)),
        };
        if is_right && same_answer && !renew {
            return Ok(Link::Stands);
        }
        // The kubelet passes over names that begin with a dot, and takes a rename for a new socket.
        let draft = self
            .registry
            .join(format!(".{}", self.link.file_name().unwrap_or_default().display()));
        remove(&draft)?;
        symlink(&self.target, &draft).map_err(access("make", &draft))?;
        fs::rename(&draft, &self.link).map_err(access("make", &self.link))?;
        // Last, so that an end in between only makes the link anew once more.
        self.take_note(answer)?;
        Ok(Link::Made)
    }

    fn take_note(&self, answer: &str) -> Result<(), FilesError> {
        let draft = self.note.with_extension("new");
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(answer.as_bytes())?;
            file.sync_all()
        });
        written.map_err(access("write", &draft))?;
        fs::rename(&draft, &self.note).map_err(access("write", &self.note))
    }

    /// The link first: the kubelet takes the entry away when it goes.
    pub(super) fn withdraw(&self) -> Result<(), FilesError> {
        [&self.link, &self.socket, &self.note]
            .into_iter()
            .try_for_each(|path| remove(path))
    }
}

/// What NodeGetInfo answers and where CSI is served, as a text that is the same for the same answer.
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

/// Runs system calls outside the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, FilesError> {
    tokio::task::spawn_blocking(call).await.unwrap_or(Err(FilesError::Lost))
}

fn exists(path: &Path) -> Result<bool, FilesError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(access("look at", path)(error)),
    }
}

fn remove(path: &Path) -> Result<(), FilesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(access("remove", path)(error)),
        _ => Ok(()),
    }
}

fn access(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FilesError {
    let path = path.to_owned();
    move |source| FilesError::Access { what, path, source }
}
