// SPDX-License-Identifier: Apache-2.0
//! Whether the clouds let us in: no call waits for the first login, but readiness and the log tell early whether the credentials
//! are good.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::Login;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::clouds::UncheckedCloud;
use crate::timing::TIMING;

/// What is known about the logins. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Logins {
    state: Arc<Mutex<LoginState>>,
}

#[derive(Debug, Default)]
struct LoginState {
    /// By cloud: why there has been no login yet; nothing when there was one.
    clouds: BTreeMap<String, Option<String>>,
    /// Why a changed configuration is not in use.
    refused: Option<String>,
}

impl Logins {
    /// Logins that are still to come.
    pub(super) fn pending(names: impl IntoIterator<Item = String>) -> Self {
        let logins = Self::default();
        logins.state().clouds = names
            .into_iter()
            .map(|name| (name, Some("not logged in to OpenStack yet".to_owned())))
            .collect();
        logins
    }

    /// Why nothing can be done in any cloud; nothing while one of them lets us in, or when there are none.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state();
        let problems: Vec<String> = state.problems().collect();
        (problems.len() == state.clouds.len() && !problems.is_empty()).then(|| problems.join("; "))
    }

    /// What is not as it should be although calls can be served.
    pub(super) fn note(&self) -> Option<String> {
        let state = self.state();
        let notes: Vec<String> = state.problems().chain(state.refused.clone()).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// A cloud let us in.
    pub(super) fn done(&self, name: &str, login: &Login) {
        tracing::info!(
            cloud = name,
            project = login.project_name,
            project_id = login.project_id,
            "logged in to OpenStack"
        );
        self.set(name, None);
    }

    /// Why a changed configuration is not in use; nothing when the last one is.
    pub(super) fn refused(&self, why: Option<String>) {
        self.state().refused = why;
    }

    /// Tries until it succeeds once, by this or by a reload, or `shutdown` comes.
    pub(super) async fn run(self, name: String, cloud: UncheckedCloud, shutdown: CancellationToken) {
        let mut pause = TIMING.login_retry_first;
        while self.is_pending(&name) {
            let tried = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                tried = cloud.login() => tried,
            };
            match tried {
                Ok(login) => return self.done(&name, &login),
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
