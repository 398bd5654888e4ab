// SPDX-License-Identifier: Apache-2.0
//! Errors of the plugin.

use std::{fmt, io};

use cinder_csi_operator::{commands::render::RenderCommandError, kubernetes::answer};

/// Errors of the plugin.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("cannot find out how to reach the API server: {0}; name a kubeconfig with --kubeconfig or KUBECONFIG")]
    Configure(String),
    /// The API server rejected a request or did not respond.
    #[error("cannot {act}: {}", answer(.source))]
    Read {
        /// The attempted action.
        act: String,
        source: Box<kube::Error>,
    },
    #[error("there is no CinderCSIDriver {0}; `kubectl get cindercsidriver` lists those that exist")]
    NoDriver(String),
    #[error("CinderCSIDriver {name} is not ready after {seconds} s: {cause}")]
    NotReady {
        name: String,
        seconds: u64,
        /// The last observed cause.
        cause: String,
    },
    /// An administrator must act before the driver can become ready.
    #[error("CinderCSIDriver {name} is stalled: {message}")]
    Stalled {
        name: String,
        /// The message of the condition.
        message: String,
    },
    #[error("cannot write {what}: {source}")]
    Write { what: String, source: io::Error },
    #[error(
        "there is no {0}; -n names another namespace, and KIND/NAME another kind, as in pod/web-0, pv/NAME, volumesnapshot/NAME or \
         volumeattachment/NAME"
    )]
    NoObject(String),
    #[error("{0} is not a kind that leads to a volume; use pvc, pod, pv, volumesnapshot or volumeattachment")]
    UnknownKind(String),
    /// The file with a CinderCSIDriver is missing or invalid.
    #[error(transparent)]
    File(#[from] RenderCommandError),
    #[error("cannot encode: {0}")]
    Encode(#[from] serde_json::Error),
}

impl PluginError {
    pub(crate) fn configure(error: impl fmt::Display) -> Self {
        Self::Configure(error.to_string())
    }

    pub(crate) fn read(act: impl fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        let act = act.to_string();
        move |source| Self::Read {
            act,
            source: Box::new(source),
        }
    }

    pub(crate) fn write(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Write { what, source }
    }
}
