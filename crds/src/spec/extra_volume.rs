//! Files that the administrator brings into the controller's pods.

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, ProjectedVolumeSource, SecretVolumeSource};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A volume of the controller's pods, mounted into the driver's container to be read. It has one source, an object in the
/// namespace of the pods.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.secret) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.projected) ? 1 : 0) == 1")
    .message("an extra volume needs exactly one of secret, configMap and projected"))]
#[x_kube(validation = Rule::new("!has(self.secret) || has(self.secret.secretName) && self.secret.secretName != ''")
    .message("secret.secretName must be given"))]
#[x_kube(validation = Rule::new("!has(self.configMap) || self.configMap.name != ''")
    .message("configMap.name must be given"))]
pub struct ExtraVolume {
    /// Name of the volume in the pods.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("!(self in ['socket', 'cloud-config', 'kube-api-access'])")
        .message(Message::Expression("'the name ' + self + ' is that of a volume that the operator makes itself: choose another one'".into())))]
    pub name: String,

    /// The directory where it is mounted.
    #[schemars(length(min = 2, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^(/[A-Za-z0-9_.-]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')")
        .message("mountPath must be an absolute path without . and .. in it and without a / at its end"))]
    #[x_kube(validation = Rule::new("!['/csi', '/etc/config', '/usr', '/dev', '/proc', '/sys'].exists(own, self == own || self.startsWith(own + '/') || own.startsWith(self + '/'))")
        .message(Message::Expression("'mountPath ' + self + ' collides with ' + ['/csi', '/etc/config', '/usr', '/dev', '/proc', '/sys'].filter(own, self == own || self.startsWith(own + '/') || own.startsWith(self + '/'))[0] + ', which the driver needs as it is: choose another directory'".into())))]
    pub mount_path: String,

    /// Keys of a Secret, as in `kubectl explain pod.spec.volumes.secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,

    /// Keys of a ConfigMap, as in `kubectl explain pod.spec.volumes.configMap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,

    /// Several of them and tokens of the service account in one, as in `kubectl explain pod.spec.volumes.projected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projected: Option<ProjectedVolumeSource>,
}
