// SPDX-License-Identifier: Apache-2.0
//! What the clouds say of the suspects. Only they are asked about, the oldest first, some at a time and at a fixed interval.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{Cloud, CloudError, Server, ServerId, Volume, VolumeId};
use cinder_operator_core::{
    clouds::trouble::{self, TroubleKind},
    diagnosis::{Case, CloudAccess, CloudAnswer, Operation, Suspect, servers_of},
};
use tokio::{task::AbortHandle, time::Instant};
use tracing::debug;

use super::Clouds;

/// Between two rounds of questions: with the number of suspects, what bounds the requests.
const ROUND_INTERVAL: Duration = Duration::from_mins(1);
/// How many suspects one round asks about.
const AT_ONCE: usize = 20;
/// How long one round of questions may take in all.
const ROUND_LIMIT: Duration = Duration::from_mins(1);

/// What the clouds said, by what they were asked about.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    volumes: HashMap<String, CloudAnswer<Volume>>,
    servers: HashMap<ServerId, Option<Server>>,
    /// What stood in the way of the questions.
    access: CloudAccess,
}

impl Answers {
    /// Adds what is known to a suspect.
    pub(super) fn join(&self, suspect: &mut Suspect) {
        let case = &mut suspect.case;
        if case.access == CloudAccess::Open {
            case.access = self.access.clone();
        }
        case.volume = question(suspect.operation, case)
            .and_then(|key| self.volumes.get(&key).cloned())
            .unwrap_or_default();
        let servers = servers_of(case).into_iter();
        case.servers = servers
            .filter_map(|id| Some((id.clone(), self.servers.get(&id)?.clone())))
            .collect();
    }
}

/// What has to be asked about a suspect: a volume's id, or the name that it will have.
fn question(operation: Operation, case: &Case) -> Option<String> {
    let by_name = || case.claim.as_ref().map(|claim| format!("pvc-{}", claim.uid));
    match (&case.volume_id, operation) {
        (Some(id), _) => Some(id.clone()),
        (None, Operation::Provision) => by_name(),
        (None, _) => None,
    }
}

/// Asks the clouds about suspects. What gets no answer stays unknown.
pub(super) async fn ask(clouds: &BTreeMap<String, Cloud>, suspects: &[Suspect]) -> Answers {
    let mut answers = Answers::default();
    let until = Instant::now() + ROUND_LIMIT;
    for suspect in suspects.iter().take(AT_ONCE) {
        if let Some(key) = question(suspect.operation, &suspect.case)
            && !answers.volumes.contains_key(&key)
        {
            let by_name = suspect.case.volume_id.is_none();
            let word = ask_all(clouds, until, &mut answers.access, |cloud| {
                look_for(cloud, &key, by_name)
            })
            .await;
            answers.volumes.insert(key, word);
        }
        let mut joined = suspect.clone();
        answers.join(&mut joined);
        for id in servers_of(&joined.case) {
            if answers.servers.contains_key(&id) {
                continue;
            }
            match ask_all(clouds, until, &mut answers.access, |cloud| cloud.server(&id)).await {
                CloudAnswer::Found(server) => answers.servers.insert(id.clone(), Some(server)),
                CloudAnswer::Missing => answers.servers.insert(id.clone(), None),
                CloudAnswer::Unknown => None,
            };
        }
    }
    answers
}

async fn look_for(cloud: &Cloud, key: &str, by_name: bool) -> Result<Option<Volume>, CloudError> {
    if by_name {
        return Ok(cloud.volumes_named(key).await?.into_iter().next());
    }
    cloud.volume(&VolumeId::new(key)).await
}

/// Asks one cloud after the other. Something is missing only when all say so.
async fn ask_all<'a, T, F>(
    clouds: &'a BTreeMap<String, Cloud>,
    until: Instant,
    access: &mut CloudAccess,
    question: impl Fn(&'a Cloud) -> F,
) -> CloudAnswer<T>
where
    F: Future<Output = Result<Option<T>, CloudError>>,
{
    let mut word = CloudAnswer::Missing;
    for cloud in clouds.values() {
        match tokio::time::timeout_at(until, question(cloud)).await {
            Ok(Ok(Some(found))) => return CloudAnswer::Found(found),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                debug!(%error, "a suspect could not be looked into");
                *access = barred(&error).unwrap_or(std::mem::take(access));
                word = CloudAnswer::Unknown;
            }
            Err(_) => word = CloudAnswer::Unknown,
        }
    }
    if clouds.is_empty() { CloudAnswer::Unknown } else { word }
}

/// What an error says about all questions; nothing where it is about one only.
fn barred(error: &CloudError) -> Option<CloudAccess> {
    let (kind, words) = trouble::of(error)?;
    Some(if kind == TroubleKind::Unauthorized {
        CloudAccess::Refused(words)
    } else {
        CloudAccess::Unreachable(words)
    })
}

#[derive(Debug)]
struct Round {
    answers: Answers,
    /// What was asked about.
    asked: Vec<(Operation, (&'static str, String))>,
    /// When it ended; `None` for the first one.
    at: Option<Instant>,
    task: Option<AbortHandle>,
}

impl Round {
    /// Until the next one may begin.
    fn due_in(&self) -> Duration {
        self.at
            .map_or(Duration::ZERO, |at| ROUND_INTERVAL.saturating_sub(at.elapsed()))
    }

    fn is_asking(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The questions about the suspects of all drivers. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Inquiries {
    drivers: Arc<Mutex<HashMap<String, Round>>>,
}

impl Inquiries {
    /// Joins the suspects with what the clouds said, and asks anew where that is due. Those that were not asked about yet are left
    /// out, so that nothing is said twice; they come with the next look, which the answers cause.
    pub fn join(&self, driver: &str, clouds: &Clouds, suspects: Vec<Suspect>) -> Vec<Suspect> {
        let sessions = clouds.sessions(driver);
        if sessions.is_empty() {
            // There is nobody to ask, now or later.
            self.forget(driver);
            return suspects;
        }
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let round = drivers.entry(driver.to_owned()).or_insert_with(|| Round {
            answers: Answers::default(),
            asked: Vec::new(),
            at: None,
            task: None,
        });
        let name = |suspect: &Suspect| (suspect.operation, suspect.case.object.clone());
        if !suspects.is_empty() && round.due_in().is_zero() && !round.is_asking() {
            let task = self
                .clone()
                .round(driver.to_owned(), clouds.clone(), sessions, suspects.clone());
            round.task = Some(tokio::spawn(task).abort_handle());
        }
        if round.asked.is_empty() {
            return Vec::new();
        }
        let mut known: Vec<Suspect> = suspects
            .into_iter()
            .enumerate()
            .filter(|(index, suspect)| *index >= AT_ONCE || round.asked.contains(&name(suspect)))
            .map(|(_, suspect)| suspect)
            .collect();
        for suspect in &mut known {
            round.answers.join(suspect);
        }
        known
    }

    async fn round(self, driver: String, clouds: Clouds, sessions: BTreeMap<String, Cloud>, suspects: Vec<Suspect>) {
        let answers = ask(&sessions, &suspects).await;
        {
            let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(round) = drivers.get_mut(&driver) else { return };
            round.answers = answers;
            round.at = Some(Instant::now());
            let asked = suspects.iter().take(AT_ONCE);
            round.asked = asked
                .map(|suspect| (suspect.operation, suspect.case.object.clone()))
                .collect();
        }
        clouds.wake(&driver);
    }

    /// When suspects have to be asked about again.
    pub fn due_in(&self, driver: &str) -> Option<Duration> {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let round = drivers.get(driver)?;
        if round.is_asking() {
            // The answers wake a reconcile.
            return Some(ROUND_INTERVAL);
        }
        Some(round.due_in().max(Duration::from_secs(1)))
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.drivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(driver);
    }
}

#[cfg(test)]
mod tests {
    use cinder_cloud::{CloudConfig, CloudOptions, GiB};
    use k8s_openapi::jiff::Timestamp;
    use openstack_sim::{AttachmentStatus, Effect, Fault, ServerSpec, Sim, SimConfig};

    use super::*;
    use cinder_operator_core::diagnosis::{Case, diagnose};

    const NODE: &str = "11111111-2222-4333-8444-555555555555";
    const GONE: &str = "22222222-2222-4333-8444-555555555555";

    async fn mk() -> (Sim, BTreeMap<String, Cloud>, Volume) {
        // A second installation in this process changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sim = Sim::start(SimConfig {
            servers: vec![ServerSpec::new(NODE), ServerSpec::new(GONE)],
            ..SimConfig::default()
        })
        .await
        .expect("the simulator starts");
        let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("good");
        let options = CloudOptions {
            request_timeout: Duration::from_secs(2),
            ..CloudOptions::default()
        };
        let cloud = Cloud::new(config, options).expect("a cloud");
        let new = cinder_cloud::NewVolume {
            name: "pvc-u".to_owned(),
            size: GiB::new(1).expect("a size"),
            largest: None,
            source: None,
            multiattach: false,
            volume_type: None,
            availability_zone: None,
            acceptable_zones: Vec::new(),
            description: String::new(),
            metadata: BTreeMap::new(),
            same_host: Vec::new(),
            different_host: Vec::new(),
            mutable_metadata: BTreeMap::new(),
        };
        let volume = cloud.create_volume(new).await.expect("a volume").volume;
        (sim, BTreeMap::from([(String::new(), cloud)]), volume)
    }

    fn mk_suspect(operation: Operation, volume: &Volume) -> Suspect {
        Suspect {
            operation,
            since: Timestamp::UNIX_EPOCH,
            case: Case {
                object: ("VolumeAttachment", "va".to_owned()),
                volume_id: Some(volume.id.to_string()),
                node: Some("node1".to_owned()),
                node_exists: true,
                node_server: Some(NODE.to_owned()),
                has_controller: true,
                ..Case::default()
            },
        }
    }

    async fn reason(clouds: &BTreeMap<String, Cloud>, mut suspect: Suspect) -> &'static str {
        let answers = ask(clouds, std::slice::from_ref(&suspect)).await;
        answers.join(&mut suspect);
        diagnose(&suspect).finding.reason
    }

    #[tokio::test]
    async fn a_volume_at_a_server_that_is_gone_is_found_in_cinder_and_nova() {
        let (sim, clouds, volume) = mk().await;
        let attached = sim.add_attachment(volume.id.as_str(), Some(GONE), AttachmentStatus::Attached);
        assert!(attached.is_some());
        sim.remove_server(GONE, true);
        assert_eq!(
            reason(&clouds, mk_suspect(Operation::Attach, &volume)).await,
            "AttachedToGoneServer"
        );
    }

    #[tokio::test]
    async fn the_server_of_the_node_is_asked_about() {
        let (sim, clouds, volume) = mk().await;
        sim.remove_server(NODE, true);
        assert_eq!(
            reason(&clouds, mk_suspect(Operation::Detach, &volume)).await,
            "ServerGone"
        );
    }

    #[tokio::test]
    async fn credentials_that_are_refused_explain_why_nothing_goes_on() {
        let (sim, clouds, volume) = mk().await;
        sim.fault(Fault::everywhere().effect(Effect::status(401)))
            .expect("a fault");
        let suspect = mk_suspect(Operation::Delete, &volume);
        assert_eq!(reason(&clouds, suspect).await, "CredentialsRefused");
    }

    #[tokio::test]
    async fn no_more_is_asked_than_one_round_allows() {
        let (sim, clouds, volume) = mk().await;
        let suspects: Vec<Suspect> = (0..AT_ONCE * 2)
            .map(|number| {
                let mut suspect = mk_suspect(Operation::Delete, &volume);
                suspect.case.volume_id = Some(format!("{number:08}-2222-4333-8444-555555555555"));
                suspect.case.node_server = None;
                suspect
            })
            .collect();
        sim.clear_log();
        let answers = ask(&clouds, &suspects).await;
        assert_eq!(answers.volumes.len(), AT_ONCE);
        let asked = sim.log().iter().filter(|entry| entry.service == "cinder").count();
        assert_eq!(asked, AT_ONCE);
    }

    fn mk_round(task: Option<AbortHandle>) -> Round {
        Round {
            answers: Answers::default(),
            asked: vec![(Operation::Attach, ("VolumeAttachment", "va".to_owned()))],
            at: Some(Instant::now()),
            task,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_answers_are_on_their_way_nobody_comes_back_for_them() {
        let inquiries = Inquiries::default();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let put = |task| {
            inquiries
                .drivers
                .lock()
                .expect("no poison")
                .insert("d".to_owned(), mk_round(task))
        };
        put(Some(task));
        tokio::time::advance(ROUND_INTERVAL * 2).await;
        assert_eq!(inquiries.due_in("d"), Some(ROUND_INTERVAL));
        put(None);
        assert_eq!(inquiries.due_in("d"), Some(ROUND_INTERVAL));
        tokio::time::advance(ROUND_INTERVAL * 2).await;
        assert_eq!(inquiries.due_in("d"), Some(Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn without_a_cloud_to_ask_nobody_comes_back_for_answers() {
        let inquiries = Inquiries::default();
        let rounds = || inquiries.drivers.lock().expect("no poison");
        rounds().insert("d".to_owned(), mk_round(None));
        let metrics = Arc::new(crate::metrics::Metrics::new().expect("metrics"));
        inquiries.join("d", &Clouds::blind(metrics), Vec::new());
        assert_eq!(inquiries.due_in("d"), None);
    }
}
