// SPDX-License-Identifier: Apache-2.0
//! Reviews the tokens of clients that read the metrics.

use std::{collections::HashMap, fmt, net::IpAddr, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use super::{Access, AccessDecision, PATH, review_budget::ReviewBudget};
use crate::kubernetes::is_allowed;

/// Validity of a cached result.
const ANSWER_LIFETIME: Duration = Duration::from_mins(1);
/// Maximum duration of one review.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of cached results of each kind.
const MAX_ANSWERS: usize = 64;
/// Time for which a token that was allowed once is reviewed without a permit.
const READER_LIFETIME: Duration = Duration::from_hours(1);
/// Maximum number of simultaneous reviews of other tokens. Any client of the network can send one.
const MAX_REVIEWS: usize = 4;

/// A hash of a token. The tokens themselves are not stored.
type TokenHash = [u8; 32];

/// Authorization by the API server.
pub struct KubernetesAccess {
    client: Client,
    /// The allowed tokens, and the time of their last review.
    readers: Mutex<HashMap<TokenHash, Instant>>,
    /// The rejected tokens. They never displace an allowed one.
    refused: Mutex<HashMap<TokenHash, (AccessDecision, Instant)>>,
    reviews: Semaphore,
    budget: ReviewBudget,
}

impl fmt::Debug for KubernetesAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesAccess").finish_non_exhaustive()
    }
}

impl KubernetesAccess {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            readers: Mutex::default(),
            refused: Mutex::default(),
            reviews: Semaphore::new(MAX_REVIEWS),
            budget: ReviewBudget::default(),
        }
    }

    async fn request_review(&self, token: &str) -> Result<AccessDecision, kube::Error> {
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
        let review = reviews.create(&PostParams::default(), &review).await?;
        let is_allowed = is_allowed(review)?;
        Ok(if is_allowed {
            AccessDecision::Allowed
        } else {
            AccessDecision::Forbidden
        })
    }

    fn cache_decision(&self, hash: TokenHash, decision: AccessDecision) {
        let now = Instant::now();
        let mut readers = self.readers.lock();
        readers.retain(|_, at| at.elapsed() < READER_LIFETIME);
        if decision == AccessDecision::Allowed {
            if readers.len() < MAX_ANSWERS || readers.contains_key(&hash) {
                readers.insert(hash, now);
            }
            return;
        }
        readers.remove(&hash);
        let mut refused = self.refused.lock();
        refused.retain(|_, (_, at)| at.elapsed() < ANSWER_LIFETIME);
        if refused.len() < MAX_ANSWERS {
            refused.insert(hash, (decision, now));
        }
    }

    fn cached_decision(&self, hash: &TokenHash) -> Option<AccessDecision> {
        let is_recent = |at: &Instant| at.elapsed() < ANSWER_LIFETIME;
        if self.readers.lock().get(hash).is_some_and(is_recent) {
            return Some(AccessDecision::Allowed);
        }
        let refused = self.refused.lock();
        let (decision, _) = refused.get(hash).filter(|(_, at)| is_recent(at))?;
        Some(*decision)
    }

    /// Reviews a token. A token that was never allowed is reviewed only within the client's budget, and only if not too
    /// many such reviews are pending.
    async fn review(&self, peer: IpAddr, hash: TokenHash, token: &str) -> Result<AccessDecision, String> {
        let is_reader = self.readers.lock().contains_key(&hash);
        let permit = self.reviews.try_acquire();
        if !is_reader && (permit.is_err() || !self.budget.take(peer)) {
            return Ok(AccessDecision::Throttled);
        }
        match tokio::time::timeout(LIMIT, self.request_review(token)).await {
            Ok(Ok(decision)) => {
                self.cache_decision(hash, decision);
                Ok(decision)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {LIMIT:?}")),
        }
    }
}

impl Access for KubernetesAccess {
    fn judge<'a>(&'a self, peer: IpAddr, token: &'a str) -> BoxFuture<'a, Result<AccessDecision, String>> {
        let hash = Sha256::digest(token).into();
        if let Some(decision) = self.cached_decision(&hash) {
            return std::future::ready(Ok(decision)).boxed();
        }
        self.review(peer, hash, token).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that accepts the token `good` and does not respond for `slow`. Counts the reviews of tokens.
    fn mk_server() -> (KubernetesAccess, Arc<AtomicUsize>) {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let reviews = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reviews);
        tokio::spawn(async move {
            let mut pending = Vec::new();
            while let Some((request, answer)) = handle.next_request().await {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let review: Value = serde_json::from_slice(&body).expect("JSON");
                let token = review["spec"]["token"].as_str();
                if token.is_some() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                if token.is_some_and(|token| token.starts_with("slow")) {
                    pending.push(answer);
                    continue;
                }
                let status = match token {
                    Some("unlucky") => json!({"authenticated": true, "user": {"username": "unlucky"}}),
                    Some(token) => json!({"authenticated": token == "good", "user": {"username": "prometheus"}}),
                    None if review["spec"]["user"] == "unlucky" => {
                        json!({"allowed": false, "evaluationError": "the webhook did not answer"})
                    }
                    None => json!({"allowed": true}),
                };
                let review = json!({"spec": {}, "status": status}).to_string();
                let response = Response::builder().status(201).body(Body::from(review.into_bytes()));
                answer.send_response(response.expect("a response"));
            }
        });
        (KubernetesAccess::new(Client::new(service, "default")), reviews)
    }

    fn mk_peer(number: usize) -> IpAddr {
        let number = u32::try_from(number).expect("small");
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_causes_few_reviews() {
        let (access, reviews) = mk_server();
        for number in 0..100 {
            let decision = access.judge(mk_peer(1), &format!("unknown-{number}")).await;
            assert!(decision.is_ok(), "{decision:?}");
        }
        let count = reviews.load(Ordering::Relaxed);
        assert_eq!(count, super::super::review_budget::BURST as usize);
        assert_eq!(access.judge(mk_peer(2), "good").await, Ok(AccessDecision::Allowed));
        assert_eq!(access.judge(mk_peer(1), "good").await, Ok(AccessDecision::Allowed));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_tokens_do_not_displace_a_reader() {
        let (access, reviews) = mk_server();
        for number in 0..2 * MAX_ANSWERS {
            let decision = access.judge(mk_peer(number), &format!("unknown-{number}")).await;
            assert_eq!(decision, Ok(AccessDecision::Unknown));
        }
        let before = reviews.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(access.judge(mk_peer(0), "good").await, Ok(AccessDecision::Allowed));
        }
        assert_eq!(reviews.load(Ordering::Relaxed), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_authorization_is_not_a_refusal() {
        let (access, reviews) = mk_server();
        for _ in 0..2 {
            let decision = access.judge(mk_peer(0), "unlucky").await;
            assert!(
                decision.as_ref().is_err_and(|error| error.contains("webhook")),
                "{decision:?}"
            );
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 2, "the failure is not stored");
    }

    #[tokio::test(start_paused = true)]
    async fn pending_reviews_of_unknown_tokens_are_limited() {
        let (access, reviews) = mk_server();
        assert_eq!(access.judge(mk_peer(0), "good").await, Ok(AccessDecision::Allowed));
        tokio::time::advance(ANSWER_LIFETIME).await;
        let slow: Vec<String> = (0..20).map(|number| format!("slow-{number}")).collect();
        let judge = |(number, token)| access.judge(mk_peer(number), token);
        let all = futures::future::join_all(slow.iter().map(String::as_str).enumerate().map(judge));
        let during = async {
            // The reviews above are pending when this one is sent.
            tokio::task::yield_now().await;
            access.judge(mk_peer(0), "good").await
        };
        let (refused, allowed) = tokio::join!(all, during);
        let is_refused = |answer: &Result<_, String>| matches!(answer, Ok(AccessDecision::Throttled) | Err(_));
        assert!(refused.iter().all(is_refused), "{refused:?}");
        assert_eq!(allowed, Ok(AccessDecision::Allowed), "a reader needs no permit");
        assert_eq!(reviews.load(Ordering::Relaxed), 1 + MAX_REVIEWS + 1);
    }
}
