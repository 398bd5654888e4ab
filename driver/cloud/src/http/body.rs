// SPDX-License-Identifier: Apache-2.0
//! Reads the bodies of HTTP responses up to a limit.

use thiserror::Error;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The largest response body of an operation, by its name or the end of its name. The first match counts.
///
/// Users of the cloud fill the metadata of servers, volumes, snapshots and backups: Nova stores 128 pairs of 255
/// characters each, and Cinder has no limit. Cinder answers a change of metadata with all pairs of the object. A
/// quota has three entries for each volume type, and an application credential has any number of access rules. A page
/// has 1,000 items unless the cloud is configured otherwise.
const LIMITS: [(Operations, usize); 9] = [
    (Operations::Named("token_create"), 4 * MIB),
    (Operations::Ending("_list"), 16 * MIB),
    (Operations::Named("server_get"), MIB),
    (Operations::Named("volume_get"), MIB),
    (Operations::Named("snapshot_get"), MIB),
    (Operations::Named("backup_get"), MIB),
    (Operations::Named("metadata_update"), MIB),
    (Operations::Named("quota_get"), MIB),
    (Operations::Named("application_credential_get"), MIB),
];

/// The largest body of a response that has one object or none.
const OBJECT_LIMIT: usize = 64 * KIB;

enum Operations {
    Named(&'static str),
    Ending(&'static str),
}

/// Returns the largest body of an operation's response, in bytes after decompression.
pub(crate) fn body_limit(operation: &str) -> usize {
    let matching = LIMITS.iter().find(|(operations, _)| match operations {
        Operations::Named(name) => operation == *name,
        Operations::Ending(end) => operation.ends_with(end),
    });
    matching.map_or(OBJECT_LIMIT, |(_, limit)| *limit)
}

/// The reason why a body could not be read.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The connection failed.
    #[error(transparent)]
    Broken(reqwest::Error),
    #[error("the response is larger than {limit} bytes")]
    TooLarge {
        limit: usize,
        /// At most the first `limit` bytes.
        start: Vec<u8>,
    },
}

/// Reads a body of at most `limit` bytes after decompression. A larger body is not read further: the response is
/// dropped, which closes its connection.
pub async fn read_body(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        let rest = limit.saturating_sub(body.len());
        if chunk.len() > rest {
            body.extend_from_slice(&chunk[..rest]);
            return Err(BodyError::TooLarge { limit, start: body });
        }
        if chunk.len() > body.capacity().saturating_sub(body.len()) {
            // Without this, a body of a little more than half of the limit occupies more than the limit.
            body.reserve_exact(body.len().max(chunk.len()).min(rest));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("token_create", 4 << 20)]
    #[case("volume_list", 16 << 20)]
    #[case("server_attachment_list", 16 << 20)]
    #[case("server_get", 1 << 20)]
    #[case("volume_create", 64 << 10)]
    #[case("version_get", 64 << 10)]
    #[case("metadata_update", 1 << 20)]
    #[case("quota_get", 1 << 20)]
    #[case("application_credential_get", 1 << 20)]
    fn each_operation_has_a_body_limit(#[case] operation: &str, #[case] limit: usize) {
        assert_eq!(body_limit(operation), limit);
    }
}
