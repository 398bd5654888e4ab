//! The CustomResourceDefinition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::CinderCSIDriver;

/// The CustomResourceDefinition of `CinderCSIDriver`.
pub fn crd() -> CustomResourceDefinition {
    CinderCSIDriver::crd()
}
