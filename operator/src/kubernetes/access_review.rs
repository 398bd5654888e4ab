// SPDX-License-Identifier: Apache-2.0
//! The answer of a SubjectAccessReview.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::core::Status;

/// Whether the API server allows the action in the review.
///
/// # Errors
///
/// An authorizer failed, so that the answer is unknown. Without an answer of this authorizer, `allowed` is false.
pub(crate) fn is_allowed(review: SubjectAccessReview) -> kube::Result<bool> {
    let status = review.status.unwrap_or_default();
    match status.evaluation_error.filter(|error| !error.is_empty()) {
        Some(error) if !status.allowed => {
            let message = format!("the API server could not evaluate an access review: {error}");
            Err(kube::Error::Api(Box::new(
                Status::failure(&message, "InternalError").with_code(500),
            )))
        }
        _ => Ok(status.allowed),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::allowed(json!({"allowed": true}), Some(true))]
    #[case::denied(json!({"allowed": false, "denied": true}), Some(false))]
    #[case::no_opinion(json!({"allowed": false, "evaluationError": ""}), Some(false))]
    #[case::allowed_by_another_authorizer(json!({"allowed": true, "evaluationError": "webhook"}), Some(true))]
    #[case::failed_authorizer(json!({"allowed": false, "evaluationError": "webhook"}), None)]
    fn failed_authorizer_leaves_access_unknown(#[case] status: Value, #[case] expected: Option<bool>) {
        let review = json!({"spec": {}, "status": status});
        let review = serde_json::from_value(review).expect("a review");
        assert_eq!(is_allowed(review).ok(), expected);
    }
}
