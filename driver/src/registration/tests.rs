// SPDX-License-Identifier: Apache-2.0
//! The registration, tested with a client that connects like the kubelet.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use csi_host::{Host, HostPaths};
use csi_proto::pluginregistration::v1::registration_client::RegistrationClient;
use http::uri::Authority;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::args::Args;
use crate::node::NodeConfig;
use crate::operations::{Limits, Operations};

const DRIVER: &str = "cinder.csi.openstack.org";

struct Kubelet {
    dir: TempDir,
}

impl Kubelet {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("plugins_registry")).expect("a directory");
        Self { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn link(&self) -> PathBuf {
        self.at("plugins_registry/cinder.csi.openstack.org@reg.sock")
    }

    fn socket(&self) -> PathBuf {
        self.at("plugins/cinder.csi.openstack.org/reg.sock")
    }

    fn registration(&self) -> Registration {
        Registration::new(RegistrationConfig {
            driver_name: DRIVER.into(),
            kubelet_dir: self.dir.path().into(),
            csi_socket: Some(self.at("plugins/cinder.csi.openstack.org/csi.sock")),
        })
        .expect("the paths are good")
    }

    /// Starts a driver in its own task. `zone` is part of the response of NodeGetInfo.
    fn start(&self, zone: &str) -> Driver {
        let args = Args {
            instance_id: Some("server-1".into()),
            availability_zone: Some(zone.into()),
            // Set explicitly, so that the machine is not queried. A query runs in a thread, which a paused clock does
            // not wait for, and all timeouts would expire.
            max_volumes_per_node: Some(26),
            ..Args::default()
        };
        let config = NodeConfig {
            args,
            ..NodeConfig::default()
        };
        let node = NodeService::new(
            config,
            Host::new(HostPaths::default()),
            Operations::new(Limits::default()),
        );
        let registration = self.registration();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(registration.clone().serve(node, shutdown.clone()));
        Driver {
            registration,
            shutdown,
            task,
        }
    }

    /// Waits until a server responds behind the link.
    async fn client(&self) -> RegistrationClient<Channel> {
        let link = Endpoint::from_shared(format!("unix://{}", self.link().display())).expect("it is an address");
        let dial = async {
            loop {
                if let Ok(channel) = link.connect().await {
                    return RegistrationClient::new(channel);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), dial)
            .await
            .expect("it is served in time")
    }
}

struct Driver {
    registration: Registration,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Driver {
    /// Waits until the driver has created the link and the note.
    async fn is_offered(&self) {
        let offered = async {
            while matches!(*self.registration.state(), RegistrationState::Waiting(_)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), offered)
            .await
            .expect("it is offered in time");
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("it ends without a panic");
    }

    /// Aborts the driver, as `kill -9` does.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.expect_err("it was aborted").is_cancelled());
    }
}

/// Returns the inode of a link, which changes when the link is replaced.
fn identity(link: &Path) -> u64 {
    fs::symlink_metadata(link).expect("it is there").ino()
}

#[test]
fn kubelet_authority_is_valid_with_at_sign() {
    let sent = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fcinder.csi.openstack.org@reg.sock";
    Authority::from_str(sent).expect("the encoded path is read as user information");
    // Without the sign, the kubelet's call fails with PROTOCOL_ERROR.
    assert!(Authority::from_str(&sent.replace('@', "-")).is_err());
    let kubelet = Kubelet::new();
    assert_eq!(kubelet.link().display().to_string().matches('@').count(), 1);
}

#[tokio::test]
async fn get_info_returns_name_socket_and_version() {
    let kubelet = Kubelet::new();
    let driver = kubelet.start("nova");
    let info = kubelet
        .client()
        .await
        .get_info(InfoRequest {})
        .await
        .expect("it answers")
        .into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
    assert!(
        info.endpoint.ends_with("plugins/cinder.csi.openstack.org/csi.sock"),
        "{}",
        info.endpoint
    );
    assert_eq!(info.supported_versions, ["1.0.0"]);
    assert_eq!(
        fs::read_link(kubelet.link()).expect("it is a link"),
        Path::new("../plugins/cinder.csi.openstack.org/reg.sock")
    );
    driver.stop().await;
}

#[tokio::test]
async fn refusal_is_reported_until_kubelet_accepts() {
    let kubelet = Kubelet::new();
    let driver = kubelet.start("nova");
    let mut client = kubelet.client().await;
    let refusal = RegistrationStatus {
        plugin_registered: false,
        error: "another of this name".into(),
    };
    client.notify_registration_status(refusal).await.expect("it answers");
    let problem = driver.registration.problem().expect("it was refused");
    assert!(problem.contains("another of this name"), "{problem}");
    let acceptance = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    client.notify_registration_status(acceptance).await.expect("it answers");
    assert_eq!(driver.registration.problem(), None);
    driver.is_offered().await;
    assert_eq!(
        driver.registration.problem(),
        None,
        "what the kubelet said is not overwritten"
    );
    driver.stop().await;
}

#[tokio::test]
async fn label_collision_is_reported_with_its_remedy() {
    let kubelet = Kubelet::new();
    let driver = kubelet.start("zone one");
    let mut client = kubelet.client().await;
    let key = crate::parameters::TOPOLOGY_ZONE;
    let refusal = RegistrationStatus {
        plugin_registered: false,
        error: format!(
            "RegisterPlugin error -- plugin registration failed with err: error updating Node object with CSI driver node info: error \
             updating node: timed out waiting for the condition; caused by: detected topology value collision: driver reported \
             {key:?}:\"x--zone_20one\" but existing label is {key:?}:\"zone-one\""
        ),
    };
    client.notify_registration_status(refusal).await.expect("it answers");
    let problem = driver.registration.problem().expect("it was refused");
    assert!(
        problem.contains(&format!("kubectl label node NODE {key}-")),
        "{problem}"
    );
    assert!(
        problem.contains("zone-one") && !problem.contains("by itself"),
        "{problem}"
    );
    driver.stop().await;
}

#[tokio::test]
async fn restart_retains_link() {
    let kubelet = Kubelet::new();
    let first = kubelet.start("nova");
    first.is_offered().await;
    let link = identity(&kubelet.link());
    first.kill().await;
    assert!(
        kubelet.socket().exists() && kubelet.link().exists(),
        "nothing may disappear when the driver does"
    );
    let second = kubelet.start("nova");
    kubelet
        .client()
        .await
        .get_info(InfoRequest {})
        .await
        .expect("the same link leads to the new process");
    assert_eq!(identity(&kubelet.link()), link);
    second.is_offered().await;
    assert_eq!(
        second.registration.problem(),
        None,
        "the registration of the first stands"
    );
    second.stop().await;
    assert!(
        kubelet.socket().exists() && kubelet.link().exists(),
        "an orderly end removes nothing either"
    );
}

#[tokio::test]
async fn changed_node_info_replaces_link() {
    let kubelet = Kubelet::new();
    let first = kubelet.start("nova");
    first.is_offered().await;
    // Prevents the inode of the first link from being reused for the second.
    let witness = kubelet.at("plugins_registry/.witness");
    fs::hard_link(kubelet.link(), &witness).expect("a link to the link");
    first.stop().await;
    let second = kubelet.start("zone-2");
    let renewed = async {
        while identity(&kubelet.link()) == identity(&witness) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed)
        .await
        .expect("it is made anew");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dangling_link_is_replaced_after_failed_attempt() {
    let kubelet = Kubelet::new();
    let first = kubelet.start("nova");
    first.is_offered().await;
    first.stop().await;
    let witness = kubelet.at("plugins_registry/.witness");
    fs::hard_link(kubelet.link(), &witness).expect("a link to the link");
    fs::remove_file(kubelet.socket()).expect("it is there");
    // A directory in place of the note cannot be read.
    let (note, aside) = (
        kubelet.at("plugins/cinder.csi.openstack.org/registration"),
        kubelet.at("aside"),
    );
    fs::rename(&note, &aside).expect("it is there");
    fs::create_dir(&note).expect("a directory");
    let second = kubelet.start("nova");
    let complained = async {
        while !second
            .registration
            .problem()
            .is_some_and(|problem| problem.contains("cannot read"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), complained)
        .await
        .expect("the note cannot be read");
    assert_eq!(
        identity(&kubelet.link()),
        identity(&witness),
        "nothing is made for a note that may say the same"
    );
    fs::remove_dir(&note).expect("it is empty");
    fs::rename(&aside, &note).expect("it is there");
    second.is_offered().await;
    assert_ne!(identity(&kubelet.link()), identity(&witness));
    second.stop().await;
}

#[test]
fn dangling_link_is_replaced() {
    let kubelet = Kubelet::new();
    let files = files::Files::new(kubelet.dir.path(), DRIVER).expect("the paths are good");
    symlink("../plugins/cinder.csi.openstack.org/reg.sock", kubelet.link()).expect("a link");
    assert!(
        files.prepare().expect("the directory can be made"),
        "there is no socket"
    );
    fs::write(kubelet.socket(), "").expect("a file in the socket's place");
    assert_eq!(
        files.link("answer", true).expect("it can be made"),
        files::LinkState::Created
    );
    assert_eq!(
        files.link("answer", false).expect("it is there"),
        files::LinkState::Valid
    );
    assert_eq!(
        files.link("another", false).expect("it can be made"),
        files::LinkState::Created
    );
    fs::remove_file(kubelet.socket()).expect("it is there");
    assert_eq!(
        files.link("another", false).expect("it can be looked at"),
        files::LinkState::SocketLost
    );
}

#[tokio::test]
async fn withdrawal_removes_all_files() {
    let kubelet = Kubelet::new();
    let driver = kubelet.start("nova");
    kubelet.client().await;
    driver.stop().await;
    kubelet
        .registration()
        .withdraw()
        .await
        .expect("everything can be removed");
    assert!(fs::symlink_metadata(kubelet.link()).is_err() && !kubelet.socket().exists());
    kubelet
        .registration()
        .withdraw()
        .await
        .expect("nothing is there, which is fine");
}

#[test]
fn removes_socket_of_dead_sidecar_only() {
    let kubelet = Kubelet::new();
    let files = files::Files::new(kubelet.dir.path(), DRIVER).expect("the paths are good");
    let sidecar = kubelet.at("plugins_registry/cinder.csi.openstack.org-reg.sock");
    let living = std::os::unix::net::UnixListener::bind(&sidecar).expect("a socket");
    files.prepare().expect("nothing is in the way");
    assert!(sidecar.exists(), "somebody serves it");
    drop(living);
    files.prepare().expect("nothing is in the way");
    assert!(!sidecar.exists(), "nobody serves it");
}

#[test]
fn foreign_file_is_not_replaced() {
    let kubelet = Kubelet::new();
    let files = files::Files::new(kubelet.dir.path(), DRIVER).expect("the paths are good");
    files.prepare().expect("the directory can be made");
    fs::write(kubelet.socket(), "").expect("a file in the socket's place");
    fs::write(kubelet.link(), "").expect("a file");
    let error = files.link("answer", true).expect_err("it is somebody else's");
    assert!(matches!(error, FilesError::Foreign { .. }), "{error}");
}

#[test]
fn invalid_registration_fails_before_any_change() {
    let config = |driver: &str, socket: Option<&str>| RegistrationConfig {
        driver_name: driver.into(),
        kubelet_dir: "/var/lib/kubelet".into(),
        csi_socket: socket.map(PathBuf::from),
    };
    let below = Some("/var/lib/kubelet/plugins/x/csi.sock");
    assert!(Registration::new(config("x", below)).is_ok());
    let error = Registration::new(config("x", Some("/csi/csi.sock"))).expect_err("the kubelet does not see it");
    assert!(
        error.to_string().contains("unix:///var/lib/kubelet/plugins/x/csi.sock"),
        "{error}"
    );
    assert!(matches!(
        Registration::new(config("x", None)),
        Err(RegistrationError::Endpoint { .. })
    ));
    assert!(matches!(
        Registration::new(config("../x", below)),
        Err(RegistrationError::DriverName { .. })
    ));
    let long = "x".repeat(100);
    assert!(matches!(
        Registration::new(config(&long, below)),
        Err(RegistrationError::TooLong { .. })
    ));
}
