// SPDX-License-Identifier: Apache-2.0
//! Asks the API server who reads the metrics, and whether they may.

use std::{collections::HashMap, fmt, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Access, AccessDecision, PATH};

/// How long an answer is kept.
const KEPT: Duration = Duration::from_mins(1);
/// How long the API server may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How many answers are kept: a few Prometheus servers, and whoever tries.
const MOST_KEPT: usize = 64;

/// Access as the API server sees it.
pub struct KubernetesAccess {
    client: Client,
    /// By the hash of the token: the tokens themselves are not kept.
    known: Mutex<HashMap<[u8; 32], (AccessDecision, Instant)>>,
}

impl fmt::Debug for KubernetesAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesAccess").finish_non_exhaustive()
    }
}

impl KubernetesAccess {
    /// Asks with `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    async fn ask(&self, token: &str) -> Result<AccessDecision, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(AccessDecision::Unknown);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.into()),
                    verb: Some("get".into()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        Ok(if status.is_some_and(|status| status.allowed) {
            AccessDecision::Allowed
        } else {
            AccessDecision::Forbidden
        })
    }

    fn remember(&self, hash: [u8; 32], decision: AccessDecision) {
        let mut known = self.known.lock();
        known.retain(|_, (_, at)| at.elapsed() < KEPT);
        if known.len() < MOST_KEPT {
            known.insert(hash, (decision, Instant::now()));
        }
    }

    fn recall(&self, hash: &[u8; 32]) -> Option<AccessDecision> {
        let known = self.known.lock();
        known
            .get(hash)
            .filter(|(_, at)| at.elapsed() < KEPT)
            .map(|(decision, _)| *decision)
    }
}

impl Access for KubernetesAccess {
    fn judge<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AccessDecision, String>> {
        let hash = Sha256::digest(token).into();
        if let Some(decision) = self.recall(&hash) {
            return std::future::ready(Ok(decision)).boxed();
        }
        async move {
            match tokio::time::timeout(LIMIT, self.ask(token)).await {
                Ok(Ok(decision)) => {
                    self.remember(hash, decision);
                    Ok(decision)
                }
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {LIMIT:?}")),
            }
        }
        .boxed()
    }
}
