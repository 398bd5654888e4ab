// SPDX-License-Identifier: Apache-2.0
//! Access reviews: whether the API server permits a request of another client.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Client, api::PostParams, core::Status};

use super::GuardedApi;

/// Whether a service account may perform the described action.
///
/// # Errors
///
/// The request failed, or the result is unknown: see [`is_allowed`].
pub(crate) async fn is_account_allowed(
    client: &Client,
    namespace: &str,
    account: &str,
    attributes: ResourceAttributes,
) -> kube::Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: GuardedApi<SubjectAccessReview> = GuardedApi::all(client.clone());
    is_allowed(reviews.create(&PostParams::default(), &review).await?)
}

/// Whether the API server allows the subject of the review. A positive result is valid even if an authorizer failed:
/// see `evaluationError` of `SubjectAccessReviewStatus` in the API reference.
///
/// # Errors
///
/// The response has no result, or an authorizer failed and the others do not allow the action, so that the result is
/// unknown.
pub(crate) fn is_allowed(review: SubjectAccessReview) -> kube::Result<bool> {
    let status = review.status.ok_or_else(|| unknown("it has no answer"))?;
    match status.evaluation_error.filter(|error| !error.is_empty()) {
        Some(error) if !status.allowed => Err(unknown(&error)),
        _ => Ok(status.allowed && status.denied != Some(true)),
    }
}

fn unknown(cause: &str) -> kube::Error {
    let message = format!("the API server could not evaluate an access review: {cause}");
    kube::Error::Api(Box::new(Status::failure(&message, "InternalError").with_code(500)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::allowed(json!({"allowed": true}), Some(true))]
    #[case::denied(json!({"allowed": false, "denied": true}), Some(false))]
    #[case::both(json!({"allowed": true, "denied": true}), Some(false))]
    #[case::no_opinion(json!({"allowed": false, "evaluationError": ""}), Some(false))]
    #[case::allowed_by_another_authorizer(json!({"allowed": true, "evaluationError": "webhook"}), Some(true))]
    #[case::failed_authorizer(json!({"allowed": false, "evaluationError": "webhook"}), None)]
    #[case::missing(Value::Null, None)]
    fn access_is_unknown_after_authorizer_failure(#[case] status: Value, #[case] expected: Option<bool>) {
        let review = json!({"spec": {}, "status": status});
        let review = serde_json::from_value(review).expect("a review");
        assert_eq!(is_allowed(review).ok(), expected);
    }
}
