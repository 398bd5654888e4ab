//! The first login: no call waits for it, but readiness and the log tell early whether the credentials are good.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cinder_cloud::Cloud;
use tokio_util::sync::CancellationToken;

/// The first login is tried again after this time, doubled each time …
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// … up to this.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Whether there has been a login. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Login {
    problem: Arc<Mutex<Option<String>>>,
}

impl Login {
    /// A login that is still to come.
    pub(super) fn pending() -> Self {
        let login = Self::default();
        login.set(Some("not logged in to OpenStack yet".into()));
        login
    }

    /// Why there has been none; nothing when there was one, or when none is needed.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries until it succeeds once or `shutdown` comes.
    pub(super) async fn run(self, cloud: Cloud, shutdown: CancellationToken) {
        let mut pause = RETRY_FIRST;
        loop {
            let tried = tokio::select! {
                tried = cloud.login() => tried,
                () = shutdown.cancelled() => return,
            };
            match tried {
                Ok(login) => {
                    tracing::info!(
                        project = login.project_name,
                        project_id = login.project_id,
                        "logged in to OpenStack"
                    );
                    return self.set(None);
                }
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?pause, "cannot log in to OpenStack");
                    self.set(Some(error.to_string()));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_MAX),
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn set(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}
