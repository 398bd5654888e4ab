// SPDX-License-Identifier: Apache-2.0

use std::os::unix::fs::symlink;
use std::path::Path;

use cinder_cloud::{Auth, Cloud, CloudOptions, VolumeId};
use csi_kit::metrics::{BuildInfo, Metrics};
use openstack_sim::{Sim, SimConfig};
use tempfile::TempDir;

use super::*;
use crate::metrics::DriverMetrics;

const NOTHING: &str = "99999999-9999-4999-8999-999999999999";
/// An operation normally takes milliseconds. After this time, it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const _: () = assert!(
    PATIENCE.as_secs() < TIMING.config_poll.as_secs(),
    "what the kernel tells must not be found by the clock"
);

/// A mounted Secret as written by the kubelet: `cloud.conf` links to `..data/cloud.conf`, and `..data` to a directory.
struct Secret {
    folder: TempDir,
    version: u32,
}

impl Secret {
    fn new(conf: &str) -> Self {
        let mut secret = Self {
            folder: tempfile::tempdir().expect("a folder"),
            version: 0,
        };
        secret.write(conf);
        symlink("..data/cloud.conf", secret.file()).expect("a link");
        secret
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("cloud.conf")
    }

    /// Replaces all files by one rename.
    fn write(&mut self, conf: &str) {
        self.version += 1;
        let directory = self.folder.path().join(format!("..{}", self.version));
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("cloud.conf"), conf).expect("a file");
        let new = self.folder.path().join("..data_tmp");
        symlink(Path::new(directory.file_name().expect("a name")), &new).expect("a link");
        std::fs::rename(&new, self.folder.path().join("..data")).expect("swapped");
    }
}

struct Stage {
    sim: Sim,
    secret: Secret,
    cloud: Cloud,
    clouds: Clouds,
    logins: Logins,
    registry: Metrics,
}

async fn sim() -> Sim {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    Sim::start(SimConfig::default()).await.expect("a cloud")
}

/// A cloud that has logged in by password, and the reload task of its configuration, which does not run yet.
async fn stage() -> (Stage, Reload) {
    let sim = sim().await;
    let secret = Secret::new(&sim.access().cloud_conf());
    let source = ConfigSource {
        files: vec![secret.file()],
        names: Vec::new(),
    };
    let configuration = source.load().expect("good");
    let cloud = Cloud::new(configuration.clouds[""].clone(), CloudOptions::default()).expect("a cloud");
    cloud.login().await.expect("logged in");
    let build = BuildInfo {
        program: "cinder_csi_driver",
        version: "0.0.0",
        revision: "",
    };
    let registry = Metrics::new(build).expect("a registry");
    let (clouds, logins) = (Clouds::single(cloud.clone()), Logins::default());
    let metrics = ReloadMetrics::new(&registry).expect("families");
    let connector = Connector {
        options: CloudOptions::default(),
        metrics: DriverMetrics::new(&registry, "d").expect("families"),
        projects: BTreeMap::new(),
    };
    let reload = Reload::new(
        source,
        connector,
        &configuration,
        clouds.clone(),
        logins.clone(),
        metrics,
    );
    let stage = Stage {
        sim,
        secret,
        cloud,
        clouds,
        logins,
        registry,
    };
    (stage, reload)
}

impl Stage {
    fn by_credential(&self) -> String {
        let access = self.sim.access();
        format!(
            "[Global]\nauth-url = {}\napplication-credential-id = {}\napplication-credential-secret = {}\nregion = {}\n",
            access.auth_url, access.application_credential_id, access.application_credential_secret, access.region
        )
    }

    fn succeeds(&self) -> bool {
        let text = self.registry.encode().expect("text");
        assert!(!text.contains("cinder_csi_config_reload_timestamp_seconds 0"), "{text}");
        text.contains("cinder_csi_config_reload_success 1\n")
    }

    fn logs_in_by_credential(&self) -> bool {
        matches!(self.cloud.config().auth, Auth::ApplicationCredential { .. })
    }
}

// kubernetes/cloud-provider-openstack#2629, #2284
#[tokio::test]
async fn replaced_secret_applies_without_restart_issue_2629_issue_2284() {
    let (mut stage, reload) = stage().await;
    assert!(stage.succeeds());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(reload.run(shutdown.clone()));
    let new = stage.by_credential();
    stage.secret.write(&new);
    let taken_over = async {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while !stage.logs_in_by_credential() {
            tick.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken_over)
        .await
        .expect("taken over, and not by the clock");
    assert!(stage.succeeds());
    stage.sim.revoke_tokens();
    stage
        .cloud
        .volume(&VolumeId::new(NOTHING))
        .await
        .expect("asked with the new credentials");
    shutdown.cancel();
    task.await.expect("it ends");
}

#[tokio::test]
async fn refused_credentials_do_not_replace_valid_ones() {
    let (mut stage, mut reload) = stage().await;
    let good = stage.sim.access().cloud_conf();
    stage.secret.write(&good.replace("secret-of-csi", "wrong-password"));
    reload.apply_changes().await.expect("understood");
    assert!(!stage.succeeds());
    let note = stage.logins.note().expect("a note");
    assert!(
        note.contains("not in use") && !note.contains("wrong-password"),
        "{note}"
    );
    assert_eq!(stage.logins.problem(), None, "calls are served");
    stage.sim.revoke_tokens();
    stage
        .cloud
        .volume(&VolumeId::new(NOTHING))
        .await
        .expect("asked with the old credentials");

    let asked = stage.sim.count("issue_token");
    reload.apply_changes().await.expect("understood");
    assert_eq!(
        stage.sim.count("issue_token"),
        asked,
        "refused credentials are not tried again at once"
    );
    stage.secret.write(&stage.by_credential());
    reload.apply_changes().await.expect("understood");
    assert!(stage.succeeds() && stage.logs_in_by_credential() && stage.logins.note().is_none());
}

#[tokio::test]
async fn malformed_file_changes_nothing() {
    let (mut stage, mut reload) = stage().await;
    stage.secret.write("[Global\n");
    for _ in 0..2 {
        assert!(reload.apply_changes().await.is_none());
        assert!(!stage.succeeds());
    }
    let note = stage.logins.note().expect("a note");
    assert!(note.contains("line 1"), "{note}");
    stage.secret.write(&stage.sim.access().cloud_conf());
    reload.apply_changes().await.expect("understood");
    assert!(stage.logins.note().is_none() && stage.succeeds());
}

#[tokio::test]
async fn malformed_file_is_not_reread_for_pending_retry() {
    let (mut stage, mut reload) = stage().await;
    let good = stage.sim.access().cloud_conf();
    stage.secret.write(&good.replace("secret-of-csi", "wrong-password"));
    reload.apply_changes().await.expect("understood");
    for attempt in reload.attempts.values_mut() {
        attempt.retry_at = Instant::now();
    }
    assert!(reload.next_check() <= Instant::now(), "it is due");
    stage.secret.write("[Global\n");
    assert!(reload.apply_changes().await.is_none());
    assert!(
        reload.next_check() > Instant::now() + TIMING.config_poll / 2,
        "the trial waits for the file"
    );
    stage.secret.write(&stage.by_credential());
    reload.apply_changes().await.expect("understood");
    assert!(stage.logs_in_by_credential() && stage.logins.note().is_none());
}

#[tokio::test]
async fn cloud_of_removed_section_stays_in_use() {
    let (mut stage, mut reload) = stage().await;
    stage.secret.write(
        &stage
            .sim
            .access()
            .cloud_conf()
            .replace("[Global]", "[Global \"other\"]"),
    );
    for _ in 0..2 {
        reload.apply_changes().await.expect("understood");
        let note = stage.logins.note().expect("a note");
        assert!(note.contains("section is gone") && !stage.succeeds(), "{note}");
    }
    stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect("still asked");
}

#[tokio::test]
async fn login_retries_until_keystone_is_available() {
    use openstack_sim::{Effect, Fault};
    let (mut stage, mut reload) = stage().await;
    stage
        .sim
        .fault(Fault::on("issue_token").effect(Effect::status(404)))
        .expect("a rule");
    stage.secret.write(&stage.by_credential());
    reload.apply_changes().await.expect("understood");
    assert!(!stage.logs_in_by_credential() && !stage.succeeds());
    stage.sim.clear_faults();
    for attempt in reload.attempts.values_mut() {
        attempt.retry_at = Instant::now();
    }
    reload.apply_changes().await.expect("understood");
    assert!(stage.logs_in_by_credential() && stage.succeeds());
}

#[test]
fn one_available_cloud_is_enough_for_readiness() {
    let logins = Logins::pending(["east".to_owned(), "west".to_owned()]);
    let problem = logins.problem().expect("neither has let us in");
    assert!(problem.contains("east") && problem.contains("west"), "{problem}");
    logins.record_login(
        "east",
        &cinder_cloud::Login {
            project_id: "p".into(),
            project_name: "p".into(),
            user_id: "u".into(),
            expires_at: "2024-01-01T00:00:00Z".parse().expect("a time"),
            services: Vec::new(),
            region: None,
        },
    );
    assert_eq!(logins.problem(), None);
    assert!(logins.note().expect("a note").contains("cloud west"));
}

#[tokio::test]
async fn new_section_is_served_after_first_login() {
    let (mut stage, mut reload) = stage().await;
    let other = sim().await;
    let names = |stage: &Stage| {
        stage
            .clouds
            .configured()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let east = stage.sim.access().cloud_conf();
    let west = other.access().cloud_conf().replace("[Global]", "[Global \"west\"]");
    reload.source.names = vec![String::new(), "west".to_owned()];

    let wrong = format!("{east}\n{}", west.replace("secret-of-csi", "wrong-password"));
    stage.secret.write(&wrong);
    for _ in 0..2 {
        reload.apply_changes().await.expect("understood");
        assert!(!stage.succeeds());
        assert_eq!(names(&stage), [""], "it would only make every look uncertain");
        let note = stage.logins.note().expect("a note");
        assert!(
            note.contains("cloud west") && !note.contains("wrong-password"),
            "{note}"
        );
        assert_eq!(stage.logins.problem(), None, "calls are served");
    }

    let right = format!("{east}\n{west}");
    stage.secret.write(&right);
    reload.apply_changes().await.expect("understood");
    assert!(stage.succeeds() && stage.logins.note().is_none());
    assert_eq!(names(&stage), ["", "west"]);
    let secrets = BTreeMap::from([("cloud".to_owned(), "west".to_owned())]);
    let chosen = stage.clouds.choose(&secrets).expect("it is known").check().await;
    let chosen = chosen.expect("no project is set");
    chosen.volume(&VolumeId::new(NOTHING)).await.expect("asked");
    assert!(other.count("get_volume") > 0, "and it is the new one that was asked");
}

#[tokio::test]
async fn removed_section_drops_refused_attempt() {
    let (mut stage, mut reload) = stage().await;
    let good = stage.sim.access().cloud_conf();
    let other = good
        .replace("[Global]", "[Global \"west\"]")
        .replace("secret-of-csi", "wrong-password");
    reload.source.names = vec![String::new(), "west".to_owned()];
    stage.secret.write(&format!("{good}\n{other}"));
    reload.apply_changes().await.expect("understood");
    assert!(stage.logins.note().is_some());
    reload.source.names = Vec::new();
    stage.secret.write(&good);
    reload.apply_changes().await.expect("understood");
    assert!(stage.logins.note().is_none() && stage.succeeds());
}
