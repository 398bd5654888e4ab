// SPDX-License-Identifier: Apache-2.0
//! Volumes that several containers of a pod mount, and their paths.

pub(super) const SOCKET_DIR: &str = "/csi";
pub(super) const SOCKET: &str = "/csi/csi.sock";
pub(super) const SOCKET_VOLUME: &str = "socket";
pub(super) const TOKEN_VOLUME: &str = "kube-api-access";
/// Default directory of the token for Kubernetes clients.
pub(super) const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Directory of the driver's socket, which other containers of the pod share.
pub(super) const PLUGIN_VOLUME: &str = "plugin-dir";
/// The kubelet's registry of plugins.
pub(super) const REGISTRY_VOLUME: &str = "registration-dir";
