// SPDX-License-Identifier: Apache-2.0
//! Records the accepted identity on the node.
//!
//! The id of a server does not change while it runs. Another id during the same boot is therefore an error of a source.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cinder_cloud::ServerId;
use csi_host::HostPaths;

use crate::node_error::InstanceError;
use crate::timing::TIMING;

/// The name of the file, in the directory of the CSI socket.
const FILE: &str = "node-identity";
/// The path below procfs. The id is random for each boot.
const BOOT_ID: &str = "sys/kernel/random/boot_id";
const LARGEST_FILE: u64 = 4096;

/// The file in the driver's directory below the kubelet's plugin directory.
#[derive(Debug, Clone)]
pub(super) struct IdentityRecord {
    path: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BootIdentity {
    boot_id: String,
    server_id: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Action {
    Keep,
    Write,
    /// The server that was accepted during this boot.
    Refuse(String),
}

impl IdentityRecord {
    /// Creates a record in `plugin_dir`. Without a directory, nothing is recorded or refused.
    pub(super) fn new(plugin_dir: Option<&Path>) -> Self {
        Self {
            path: plugin_dir.map(|dir| dir.join(FILE)),
        }
    }

    /// Records the identity, or refuses it if another one is recorded for this boot.
    ///
    /// `is_configured` marks an id that an administrator set, which replaces the recorded one. An unreadable or
    /// unwritable record causes a warning and never prevents the registration.
    pub(super) async fn accept(
        &self,
        paths: &HostPaths,
        server_id: &ServerId,
        is_configured: bool,
    ) -> Result<(), InstanceError> {
        let Some(path) = self.path.clone() else {
            tracing::info!(
                "the identity of this node is not recorded: --endpoint is not a unix socket in a directory of the node"
            );
            return Ok(());
        };
        let (boot_id, server_id) = (paths.proc.join(BOOT_ID), server_id.to_string());
        let accept = tokio::task::spawn_blocking(move || accept(&path, &boot_id, server_id, is_configured));
        match tokio::time::timeout(TIMING.identity_record_timeout, accept).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the identity of this node is not recorded: the task panicked");
                Ok(())
            }
            Err(_) => {
                tracing::warn!("the identity of this node is not recorded: its file does not answer");
                Ok(())
            }
        }
    }
}

fn accept(path: &Path, boot_id: &Path, server_id: String, is_configured: bool) -> Result<(), InstanceError> {
    let boot_id = match read(boot_id) {
        Ok(Some(text)) => text.trim().to_owned(),
        other => {
            let error = other.err().map(|error| error.to_string());
            tracing::warn!(path = %boot_id.display(), error, "the identity of this node is not recorded: no boot id");
            return Ok(());
        }
    };
    let current = BootIdentity { boot_id, server_id };
    match decide(recorded(path).as_ref(), &current, is_configured) {
        Action::Keep => Ok(()),
        Action::Write => {
            if let Err(error) = write(path, &current) {
                tracing::warn!(path = %path.display(), %error, "cannot record the identity of this node");
            }
            Ok(())
        }
        Action::Refuse(recorded) => Err(InstanceError::Changed {
            recorded,
            current: current.server_id,
            path: path.to_owned(),
        }),
    }
}

fn decide(recorded: Option<&BootIdentity>, current: &BootIdentity, is_configured: bool) -> Action {
    match recorded {
        Some(recorded) if recorded.boot_id != current.boot_id => Action::Write,
        Some(recorded) if recorded.server_id.eq_ignore_ascii_case(&current.server_id) => Action::Keep,
        Some(recorded) if !is_configured => Action::Refuse(recorded.server_id.clone()),
        Some(_) | None => Action::Write,
    }
}

/// Reads the record; `None` with a warning if it is damaged, so that a damaged file does not exclude the node.
fn recorded(path: &Path) -> Option<BootIdentity> {
    let problem = match read(path) {
        Ok(None) => return None,
        Ok(Some(text)) => match BootIdentity::parse(&text) {
            Some(entry) => return Some(entry),
            None => "the file is damaged".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    tracing::warn!(path = %path.display(), problem, "cannot read the recorded identity of this node; it is replaced");
    None
}

impl BootIdentity {
    fn parse(text: &str) -> Option<Self> {
        let (boot, server) = text.strip_suffix('\n')?.split_once('\n')?;
        let boot_id = boot.strip_prefix("boot ")?.to_owned();
        let server_id = server.strip_prefix("server ")?.to_owned();
        let is_valid = !boot_id.is_empty() && !server_id.is_empty() && !server_id.contains('\n');
        is_valid.then_some(Self { boot_id, server_id })
    }

    fn render(&self) -> String {
        format!("boot {}\nserver {}\n", self.boot_id, self.server_id)
    }
}

/// Reads a small file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(LARGEST_FILE).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Replaces the file atomically, so that it has either the old or the new content after a crash.
fn write(path: &Path, entry: &BootIdentity) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(entry.render().as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn entry(boot_id: &str, server_id: &str) -> BootIdentity {
        BootIdentity {
            boot_id: boot_id.to_owned(),
            server_id: server_id.to_owned(),
        }
    }

    #[rstest]
    #[case::first_start(None, false, Action::Write)]
    #[case::same_identity(Some(("boot-1", "A")), false, Action::Keep)]
    #[case::other_identity(Some(("boot-1", "b")), false, Action::Refuse("b".into()))]
    #[case::other_identity_by_flag(Some(("boot-1", "b")), true, Action::Write)]
    #[case::reboot(Some(("boot-0", "a")), false, Action::Write)]
    #[case::reboot_as_other_server(Some(("boot-0", "b")), false, Action::Write)]
    fn identity_is_fixed_for_one_boot(
        #[case] recorded: Option<(&str, &str)>,
        #[case] is_configured: bool,
        #[case] expected: Action,
    ) {
        let recorded = recorded.map(|(boot_id, server_id)| entry(boot_id, server_id));
        assert_eq!(
            decide(recorded.as_ref(), &entry("boot-1", "a"), is_configured),
            expected
        );
    }

    #[rstest]
    #[case("boot b\nserver s\n", true)]
    #[case("boot b\nserver s", false)]
    #[case("boot b\nserver \n", false)]
    #[case("boot b\nserver s\nmore\n", false)]
    #[case("server s\nboot b\n", false)]
    #[case("", false)]
    fn damaged_record_is_recognized(#[case] text: &str, #[case] is_valid: bool) {
        assert_eq!(BootIdentity::parse(text), is_valid.then(|| entry("b", "s")));
    }

    /// A record in a directory with the boot id of an emulated kernel.
    struct Boot(tempfile::TempDir);

    impl Boot {
        fn new() -> Self {
            let boot = Self(tempfile::tempdir().expect("a temporary directory"));
            boot.reboot("boot-1");
            boot
        }

        fn reboot(&self, boot_id: &str) {
            let path = self.0.path().join(BOOT_ID);
            fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
            fs::write(path, format!("{boot_id}\n")).expect("a file");
        }

        fn file(&self) -> PathBuf {
            self.0.path().join(FILE)
        }

        async fn accept(&self, server_id: &str, is_configured: bool) -> Result<(), InstanceError> {
            let paths = HostPaths {
                proc: self.0.path().into(),
                ..HostPaths::default()
            };
            let record = IdentityRecord::new(Some(self.0.path()));
            record.accept(&paths, &ServerId::new(server_id), is_configured).await
        }
    }

    #[tokio::test]
    async fn restart_refuses_other_identity_until_reboot() {
        let boot = Boot::new();
        boot.accept("a", false).await.expect("the first start");
        boot.accept("a", false).await.expect("a restart");
        let message = boot.accept("b", false).await.expect_err("another server").to_string();
        let file = boot.file().display().to_string();
        for part in ["server a", "server b", file.as_str(), "reboot", "delete"] {
            assert!(message.contains(part), "{message}");
        }
        boot.reboot("boot-2");
        boot.accept("b", false).await.expect("a restart after a reboot");
    }

    #[tokio::test]
    async fn deleted_record_accepts_new_identity() {
        let boot = Boot::new();
        boot.accept("a", false).await.expect("the first start");
        fs::remove_file(boot.file()).expect("the record exists");
        boot.accept("b", false).await.expect("the administrator confirmed it");
    }

    #[tokio::test]
    async fn flag_replaces_recorded_identity() {
        let boot = Boot::new();
        boot.accept("a", false).await.expect("the first start");
        boot.accept("b", true).await.expect("the flag");
        boot.accept("b", false).await.expect("the recorded server");
        boot.accept("a", false).await.expect_err("the replaced server");
    }

    #[rstest]
    #[case::text(b"nonsense")]
    #[case::not_text(b"boot \xff\n")]
    #[tokio::test]
    async fn damaged_record_is_replaced(#[case] content: &[u8]) {
        let boot = Boot::new();
        fs::write(boot.file(), content).expect("a file");
        boot.accept("a", false).await.expect("a damaged record");
        boot.accept("b", false).await.expect_err("another server");
    }

    #[tokio::test]
    async fn node_without_directory_or_boot_id_registers() {
        let boot = Boot::new();
        let missing = boot.0.path().join("missing");
        let paths = HostPaths {
            proc: boot.0.path().into(),
            ..HostPaths::default()
        };
        for dir in [None, Some(missing.as_path())] {
            let record = IdentityRecord::new(dir);
            record
                .accept(&paths, &ServerId::new("a"), false)
                .await
                .expect("a warning");
        }
        let record = IdentityRecord::new(Some(boot.0.path()));
        let paths = HostPaths {
            proc: missing.clone(),
            ..HostPaths::default()
        };
        record
            .accept(&paths, &ServerId::new("a"), false)
            .await
            .expect("a warning");
        assert!(!boot.file().exists());
    }
}
