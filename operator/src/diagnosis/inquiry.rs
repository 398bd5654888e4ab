//! What the clouds say of the suspects. Only they are asked about, the oldest first, and only as far as the budget goes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::{Cloud, CloudError, Server, ServerId, Volume, VolumeId};
use tokio::{task::AbortHandle, time::Instant};
use tracing::debug;

use super::{Operation, Suspect, Word, servers_of};
use crate::clouds::{Clouds, budget::Budget};

/// How long an answer holds.
const HOLDS: Duration = Duration::from_mins(2);
/// How many suspects are asked about at once.
const AT_ONCE: usize = 20;
/// How long one round of questions may take in all.
const ROUND_LIMIT: Duration = Duration::from_mins(1);
/// How long one question waits for the budget.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the clouds said, by what they were asked about.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    volumes: HashMap<String, Word<Volume>>,
    servers: HashMap<ServerId, Option<Server>>,
}

impl Answers {
    /// Adds what is known to a suspect.
    pub fn join(&self, suspect: &mut Suspect) {
        let case = &mut suspect.case;
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
fn question(operation: Operation, case: &super::Case) -> Option<String> {
    let by_name = || case.claim.as_ref().map(|claim| format!("pvc-{}", claim.uid));
    match (&case.volume_id, operation) {
        (Some(id), _) => Some(id.clone()),
        (None, Operation::Provision) => by_name(),
        (None, _) => None,
    }
}

/// Asks the clouds about suspects. What gets no answer stays unknown.
pub async fn ask(clouds: &BTreeMap<String, Cloud>, budget: &Budget, suspects: &[Suspect]) -> Answers {
    let mut answers = Answers::default();
    let until = Instant::now() + ROUND_LIMIT;
    for suspect in suspects.iter().take(AT_ONCE) {
        if let Some(key) = question(suspect.operation, &suspect.case)
            && !answers.volumes.contains_key(&key)
        {
            let by_name = suspect.case.volume_id.is_none();
            let word = ask_all(clouds, budget, until, |cloud| look_for(cloud, &key, by_name)).await;
            answers.volumes.insert(key, word);
        }
        let mut joined = suspect.clone();
        answers.join(&mut joined);
        for id in servers_of(&joined.case) {
            if answers.servers.contains_key(&id) {
                continue;
            }
            match ask_all(clouds, budget, until, |cloud| cloud.server(&id)).await {
                Word::Found(server) => answers.servers.insert(id.clone(), Some(server)),
                Word::Missing => answers.servers.insert(id.clone(), None),
                Word::Unknown => None,
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
    budget: &Budget,
    until: Instant,
    question: impl Fn(&'a Cloud) -> F,
) -> Word<T>
where
    F: Future<Output = Result<Option<T>, CloudError>>,
{
    let mut word = Word::Missing;
    for cloud in clouds.values() {
        let patience = until.saturating_duration_since(Instant::now()).min(PATIENCE);
        if !budget.wait(patience).await {
            return Word::Unknown;
        }
        match tokio::time::timeout_at(until, question(cloud)).await {
            Ok(Ok(Some(found))) => return Word::Found(found),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                debug!(%error, "a suspect could not be looked into");
                word = Word::Unknown;
            }
            Err(_) => word = Word::Unknown,
        }
    }
    if clouds.is_empty() { Word::Unknown } else { word }
}

#[derive(Debug)]
struct Round {
    answers: Answers,
    /// What was asked about.
    asked: Vec<(Operation, (&'static str, String))>,
    at: Instant,
    task: Option<AbortHandle>,
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
        let Some((sessions, budget)) = clouds.sessions(driver).filter(|(sessions, _)| !sessions.is_empty()) else {
            return suspects;
        };
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let round = drivers.entry(driver.to_owned()).or_insert_with(|| Round {
            answers: Answers::default(),
            asked: Vec::new(),
            at: Instant::now(),
            task: None,
        });
        let name = |suspect: &Suspect| (suspect.operation, suspect.case.object.clone());
        let is_new = |suspect: &&Suspect| !round.asked.contains(&name(suspect));
        let has_new = suspects.iter().take(AT_ONCE).any(|suspect| is_new(&suspect));
        let is_due = !suspects.is_empty() && (has_new || round.at.elapsed() >= HOLDS);
        let is_asking = round.task.as_ref().is_some_and(|task| !task.is_finished());
        if is_due && !is_asking {
            let task = self
                .clone()
                .round(driver.to_owned(), clouds.clone(), sessions, budget, suspects.clone());
            round.task = Some(tokio::spawn(task).abort_handle());
        }
        let mut known: Vec<Suspect> = suspects
            .into_iter()
            .enumerate()
            .filter(|(index, suspect)| *index >= AT_ONCE || round.asked.contains(&name(suspect)))
            .map(|(_, suspect)| suspect)
            .collect();
        known.iter_mut().for_each(|suspect| round.answers.join(suspect));
        known
    }

    async fn round(
        self,
        driver: String,
        clouds: Clouds,
        sessions: BTreeMap<String, Cloud>,
        budget: Arc<Budget>,
        suspects: Vec<Suspect>,
    ) {
        let answers = ask(&sessions, &budget, &suspects).await;
        {
            let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(round) = drivers.get_mut(&driver) else { return };
            round.answers = answers;
            round.at = Instant::now();
            let asked = suspects.iter().take(AT_ONCE);
            round.asked = asked
                .map(|suspect| (suspect.operation, suspect.case.object.clone()))
                .collect();
        }
        clouds.wake(&driver).await;
    }

    /// When suspects have to be asked about again.
    pub fn due_in(&self, driver: &str) -> Option<Duration> {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let round = drivers.get(driver)?;
        Some(HOLDS.saturating_sub(round.at.elapsed()).max(Duration::from_secs(1)))
    }

    /// Forgets a driver that is gone.
    pub fn forget(&self, driver: &str) {
        self.drivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(driver);
    }
}
