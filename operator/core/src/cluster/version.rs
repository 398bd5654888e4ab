// SPDX-License-Identifier: Apache-2.0
//! The version of the API server.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Major and minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KubernetesVersion {
    /// Currently always 1.
    pub major: u32,
    /// For example 36 for Kubernetes 1.36.
    pub minor: u32,
}

impl KubernetesVersion {
    /// Parses a displayed version.
    pub fn read(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Self::parse(major, minor)
    }

    /// Parses the response of `/version`. Some providers append a plus sign to the minor version.
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// Whether Kubernetes is at least `1.minor`. An unknown version counts as a new one.
pub fn at_least(kubernetes: Option<KubernetesVersion>, minor: u32) -> bool {
    kubernetes.is_none_or(|version| version >= KubernetesVersion { major: 1, minor })
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
