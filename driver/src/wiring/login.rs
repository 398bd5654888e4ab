// SPDX-License-Identifier: Apache-2.0
//! Logs in to the clouds at the start.
//!
//! Calls do not wait for the first login, but readiness and the log report early whether the credentials are valid.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::Login;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::clouds::UncheckedCloud;
use crate::timing::TIMING;

/// The state of the logins. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Logins {
    state: Arc<Mutex<LoginState>>,
}

#[derive(Debug, Default)]
struct LoginState {
    /// The problem of each cloud; `None` after a login.
    clouds: BTreeMap<String, Option<String>>,
    /// The reason why a changed configuration is not in use.
    refused: Option<String>,
}

impl Logins {
    /// Creates the state for clouds without a login yet.
    pub(super) fn pending(names: impl IntoIterator<Item = String>) -> Self {
        let logins = Self::default();
        logins.state().clouds = names
            .into_iter()
            .map(|name| (name, Some("not logged in to OpenStack yet".to_owned())))
            .collect();
        logins
    }

    /// Returns the problems if no cloud accepted a login; `None` if one did, or if there are no clouds.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state();
        let problems: Vec<String> = state.problems().collect();
        (problems.len() == state.clouds.len() && !problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the problems that do not prevent calls from being served.
    pub(super) fn note(&self) -> Option<String> {
        let state = self.state();
        let notes: Vec<String> = state.problems().chain(state.refused.clone()).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Records a login.
    pub(super) fn record_login(&self, name: &str, login: &Login) {
        tracing::info!(
            cloud = name,
            project = login.project_name,
            project_id = login.project_id,
            "logged in to OpenStack"
        );
        self.set(name, None);
    }

    /// Sets the reason why a changed configuration is not in use; `None` if the latest one is in use.
    pub(super) fn set_reload_problem(&self, why: Option<String>) {
        self.state().refused = why;
    }

    /// Retries until a login succeeds, here or during a reload, or until `shutdown`.
    pub(super) async fn run(self, name: String, cloud: UncheckedCloud, shutdown: CancellationToken) {
        let mut pause = TIMING.login_retry_first;
        while self.is_pending(&name) {
            let tried = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                tried = cloud.login() => tried,
            };
            match tried {
                Ok(login) => return self.record_login(&name, &login),
                Err(error) => {
                    tracing::warn!(cloud = name, %error, retry_in = ?pause, "cannot log in to OpenStack");
                    self.set(&name, Some(error.to_string()));
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(TIMING.login_retry_max),
            }
        }
    }

    fn is_pending(&self, name: &str) -> bool {
        self.state().clouds.get(name).is_some_and(Option::is_some)
    }

    fn set(&self, name: &str, problem: Option<String>) {
        self.state().clouds.insert(name.to_owned(), problem);
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock()
    }
}

impl LoginState {
    fn problems(&self) -> impl Iterator<Item = String> {
        self.clouds.iter().filter_map(|(name, problem)| {
            let problem = problem.as_ref()?;
            Some(match name.as_str() {
                "" => problem.clone(),
                name => format!("cloud {name}: {problem}"),
            })
        })
    }
}
