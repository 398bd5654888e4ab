// SPDX-License-Identifier: Apache-2.0
//! Names that follow from a spec: the namespace, the prefix of the driver's objects, and the default class.

use cinder_csi_crds::{CinderCSIDriver, DEFAULT_DRIVER_NAME};

use crate::text::short_hash;

/// Returns the namespace of a driver. `operators` is the namespace of the operator.
pub fn namespace_of<'a>(driver: &'a CinderCSIDriver, operators: &'a str) -> &'a str {
    driver.spec.operand_namespace.as_deref().unwrap_or(operators)
}

/// Returns the prefix of the names of a driver's objects: short for the default driver name, unique for every other
/// name.
fn name_prefix(driver_name: &str) -> String {
    if driver_name == DEFAULT_DRIVER_NAME {
        return "cinder-csi".into();
    }
    format!("cinder-csi-{}", short_hash(driver_name, 8))
}

/// Returns the prefix of the names of a driver's objects, according to its spec.
pub fn name_prefix_of(driver: &CinderCSIDriver) -> String {
    let configured = driver.spec.instance_name.clone();
    configured.unwrap_or_else(|| name_prefix(driver.metadata.name.as_deref().unwrap_or_default()))
}

/// Returns the default class of a driver whose spec has no classes. StorageClasses of two drivers cannot share a
/// name.
pub(super) fn usual_class(driver: &CinderCSIDriver) -> String {
    if driver.metadata.name.as_deref() == Some(DEFAULT_DRIVER_NAME) {
        "cinder".into()
    } else {
        name_prefix_of(driver)
    }
}
