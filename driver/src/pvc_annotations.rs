// SPDX-License-Identifier: Apache-2.0
//! Reads the placement hints for a new volume from the annotations of its claim.
//!
//! CSI does not transmit annotations. With `--pvc-annotations`, the controller reads the claim from the Kubernetes API
//! with one GET per creation. It uses the HTTP client for OpenStack and the service account of the pod. There is no
//! watch and no cache, because creations are rare. A Kubernetes library would double the size of the driver for one
//! object.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cinder_cloud::{BodyError, Cloud, CloudError, SystemResolver, Volume, VolumeId, metadata_keys, read_body};
use csi_sources::files::read_config_text;
use reqwest::{Certificate, Client, StatusCode};
use serde::Deserialize;
use thiserror::Error;

use crate::timing::TIMING;

/// Where Kubernetes mounts the token and the CA of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Volumes on the same backend as the new one.
const AFFINITY: &str = "cinder.csi.openstack.org/affinity";
/// Volumes on other backends than the new one.
const ANTI_AFFINITY: &str = "cinder.csi.openstack.org/anti-affinity";
/// The maximum size of a response with a claim. The API server stores objects of at most 1.5 MiB, and JSON escapes add
/// to it.
const CLAIM_LIMIT: usize = 4 << 20;
/// The maximum number of volumes in one annotation.
const MAX_PVC_HINTS: usize = 32;

/// Errors of reading the annotations of a claim.
#[derive(Debug, Error)]
pub enum PvcAnnotationError {
    /// The process is not in a pod, and no address is configured.
    #[error("--pvc-annotations: no Kubernetes API is known; run in a pod, or give its address by --master")]
    NoAddress,
    /// A file of the service account cannot be read.
    #[error("--pvc-annotations: {}: {source}; mount the service account's token into the pod", path.display())]
    Account { path: PathBuf, source: std::io::Error },
    /// The connection cannot be set up.
    #[error("--pvc-annotations: the connection to the Kubernetes API cannot be set up: {0}")]
    Setup(#[source] reqwest::Error),
    /// The API server did not respond.
    #[error("the claim {claim} cannot be read for its annotations: {source}")]
    NoAnswer {
        /// Namespace and name.
        claim: String,
        source: reqwest::Error,
    },
    /// The response is larger than a claim can be.
    #[error(
        "the claim {claim} cannot be read for its annotations: the response is larger than {limit} bytes; check that --master, or the \
         pod's environment, names the Kubernetes API"
    )]
    TooLarge {
        /// Namespace and name.
        claim: String,
        limit: usize,
    },
    /// The response is not a claim.
    #[error("the claim {claim} cannot be read for its annotations: the response is not a claim: {reason}")]
    Malformed {
        /// Namespace and name.
        claim: String,
        reason: String,
    },
    /// The API server refused the request.
    #[error(
        "the claim {claim} cannot be read for its annotations: HTTP {status}; the driver's service account needs the verb get on \
         persistentvolumeclaims"
    )]
    Refused {
        /// Namespace and name.
        claim: String,
        status: StatusCode,
    },
}

/// A client that reads the annotations of claims.
#[derive(Debug, Clone)]
pub struct PvcAnnotations {
    address: String,
    account: PathBuf,
}

#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl PvcAnnotations {
    /// Creates a client for the API server at `master`, or for that of the pod's environment if `master` is empty.
    /// Sends no request.
    pub fn new(master: &str) -> Result<Self, PvcAnnotationError> {
        let inside = || {
            let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
            let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
            // IPv6 addresses are enclosed in brackets.
            Some(if host.contains(':') {
                format!("https://[{host}]:{port}")
            } else {
                format!("https://{host}:{port}")
            })
        };
        let configured = (!master.is_empty()).then(|| master.trim_end_matches('/').to_owned());
        Ok(Self {
            address: configured.or_else(inside).ok_or(PvcAnnotationError::NoAddress)?,
            account: SERVICE_ACCOUNT.into(),
        })
    }

    /// Reads the hints of a claim; empty if the claim does not exist.
    pub async fn hints(&self, namespace: &str, name: &str) -> Result<Hints, PvcAnnotationError> {
        let claim = || format!("{namespace}/{name}");
        // Token and certificates are rotated while the process runs, so they are read for each call.
        let token = self.account("token").await?;
        let mut client = Client::builder()
            .timeout(TIMING.claim_timeout)
            .dns_resolver(Arc::new(SystemResolver::default()))
            .redirect(reqwest::redirect::Policy::none());
        if self.address.starts_with("https") {
            let ca = self.account("ca.crt").await?;
            let certificates = Certificate::from_pem_bundle(ca.as_bytes()).map_err(PvcAnnotationError::Setup)?;
            client = client.tls_built_in_root_certs(false);
            client = certificates
                .into_iter()
                .fold(client, reqwest::ClientBuilder::add_root_certificate);
        }
        let client = client.build().map_err(PvcAnnotationError::Setup)?;
        let url = format!(
            "{}/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}",
            self.address
        );
        let no_answer = |source: reqwest::Error| PvcAnnotationError::NoAnswer {
            claim: claim(),
            source: source.without_url(),
        };
        let answer = client
            .get(url)
            .bearer_auth(token.trim())
            .send()
            .await
            .map_err(no_answer)?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(Hints::default()),
            status if status.is_success() => {
                let body = read_body(answer, CLAIM_LIMIT).await.map_err(|error| match error {
                    BodyError::Broken(source) => no_answer(source),
                    BodyError::TooLarge { limit, .. } => PvcAnnotationError::TooLarge { claim: claim(), limit },
                })?;
                let claim: Claim = serde_json::from_slice(&body).map_err(|error| PvcAnnotationError::Malformed {
                    claim: claim(),
                    reason: error.to_string(),
                })?;
                Ok(Hints::from_annotations(&claim.metadata.annotations))
            }
            status => Err(PvcAnnotationError::Refused { claim: claim(), status }),
        }
    }

    async fn account(&self, file: &str) -> Result<String, PvcAnnotationError> {
        let path = self.account.join(file);
        let read = tokio::task::spawn_blocking({
            let path = path.clone();
            move || read_config_text(&path)
        });
        let read = read.await.unwrap_or_else(|error| Err(error.into()));
        read.map_err(|source| PvcAnnotationError::Account { path, source })
    }
}

/// The volumes whose backend a new volume shares or avoids, by name or id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    affinity: Vec<String>,
    anti_affinity: Vec<String>,
}

/// The resolved [`Hints`], by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedHints {
    /// Volumes on the same backend.
    pub affinity: Vec<VolumeId>,
    /// Volumes on other backends.
    pub anti_affinity: Vec<VolumeId>,
}

/// Errors of resolving hints.
#[derive(Debug, Error)]
pub enum HintError {
    /// No volume, or more than one, has this name or id.
    #[error("annotation {annotation} of the claim names {volume:?}, {reason}")]
    Volume {
        annotation: &'static str,
        volume: String,
        /// The problem with the volume.
        reason: &'static str,
    },
    /// The annotation has too many volumes.
    #[error("annotation {0} of the claim names more than {MAX_PVC_HINTS} volumes")]
    TooMany(&'static str),
    #[error(transparent)]
    Cloud(#[from] CloudError),
}

impl Hints {
    fn from_annotations(annotations: &BTreeMap<String, String>) -> Self {
        let list = |key: &str| -> Vec<String> {
            let text = annotations.get(key).map(String::as_str).unwrap_or_default();
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        Self {
            affinity: list(AFFINITY),
            anti_affinity: list(ANTI_AFFINITY),
        }
    }

    /// Resolves the hints to volumes of this cluster. The author of a claim must not learn about other volumes of the
    /// project.
    pub async fn resolve(&self, cloud: &Cloud, cluster: &str) -> Result<ResolvedHints, HintError> {
        Ok(ResolvedHints {
            affinity: resolve_names(cloud, cluster, AFFINITY, &self.affinity).await?,
            anti_affinity: resolve_names(cloud, cluster, ANTI_AFFINITY, &self.anti_affinity).await?,
        })
    }
}

async fn resolve_names(
    cloud: &Cloud,
    cluster: &str,
    annotation: &'static str,
    names: &[String],
) -> Result<Vec<VolumeId>, HintError> {
    if names.len() > MAX_PVC_HINTS {
        return Err(HintError::TooMany(annotation));
    }
    let mut volumes: Vec<VolumeId> = Vec::with_capacity(names.len());
    for name in names {
        let wrong = |reason| HintError::Volume {
            annotation,
            volume: name.clone(),
            reason,
        };
        let is_of_cluster =
            |volume: &Volume| volume.metadata.get(metadata_keys::CLUSTER).map(String::as_str) == Some(cluster);
        let mut id = VolumeId::new(name.as_str());
        if !cloud.volume(&id).await?.is_some_and(|volume| is_of_cluster(&volume)) {
            let mut candidates = cloud.volumes_named(name).await?;
            candidates.retain(is_of_cluster);
            id = match candidates.as_slice() {
                [one] => one.id.clone(),
                [] => return Err(wrong("and this cluster has no such volume; give the name or id of one")),
                _ => return Err(wrong("and several volumes have that name; give the id")),
            };
        }
        // A volume may be listed twice, for example by name and by id. Cinder refuses duplicates.
        if !volumes.contains(&id) {
            volumes.push(id);
        }
    }
    Ok(volumes)
}

impl ResolvedHints {
    /// Returns the entries of the volume context that the Go driver uses.
    pub fn context(&self) -> impl Iterator<Item = (String, String)> {
        [("affinity", &self.affinity), ("anti-affinity", &self.anti_affinity)]
            .into_iter()
            .filter(|(_, volumes)| !volumes.is_empty())
            .map(|(key, volumes)| {
                let ids: Vec<&str> = volumes.iter().map(VolumeId::as_str).collect();
                (key.to_owned(), ids.join(","))
            })
    }
}

#[cfg(test)]
mod tests;
