// SPDX-License-Identifier: Apache-2.0
//! Reads the DMI tables: whether the firmware identifies an OpenStack server, and its UUID.

use std::io;
use std::path::Path;

use crate::timing::TIMING;
use crate::{Host, Machine, OffloadError, slots};

/// Product names or asset tags by which cloud-init's ds-identify recognizes an OpenStack server.
const NAMES: [&str; 2] = ["OpenStack Nova", "OpenStack Compute"];
/// Asset tags of public clouds that run OpenStack, also from ds-identify.
const ASSET_TAGS: [&str; 4] = [
    "HUAWEICLOUD",
    "OpenTelekomCloud",
    "SAP CCloud VM",
    "Samsung Cloud Platform",
];
/// Nova's vendor string, which remains if a distribution renames the product.
const VENDOR: &str = "OpenStack Foundation";
/// Hypervisors that may write the first three fields of the UUID in another byte order than the kernel expects.
const SWAPPING_VENDORS: [&str; 2] = ["VMware", "Microsoft"];

/// Identification of this machine by its firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firmware {
    /// The firmware does not identify an OpenStack server: bare metal, or a hypervisor that Nova does not configure.
    Silent,
    /// The firmware identifies an OpenStack server.
    Server {
        /// The UUID in lower case.
        uuid: String,
        /// Whether the vendor's firmware may swap the bytes of the first three fields.
        may_be_swapped: bool,
    },
    /// The firmware cannot be read, or it identifies an OpenStack server without a valid UUID. The text is the reason.
    Unknown(String),
}

impl Host {
    /// Reads the DMI tables. Bounded by 5 s.
    pub async fn firmware(&self) -> Firmware {
        let (machine, dir) = (self.inner.machine.clone(), self.inner.paths.sys.join("class/dmi/id"));
        let read = move || read_firmware(&*machine, &dir).unwrap_or_else(Firmware::Unknown);
        let answer: Result<Firmware, OffloadError> = self
            .inner
            .calls
            .run_local("reading the DMI tables", TIMING.firmware_timeout, read)
            .await;
        answer.unwrap_or_else(|error| Firmware::Unknown(error.to_string()))
    }
}

fn read_firmware(machine: &dyn Machine, dir: &Path) -> Result<Firmware, String> {
    let product = read_attribute(machine, dir, "product_name")?;
    let vendor = read_attribute(machine, dir, "sys_vendor")?;
    let asset_tag = read_attribute(machine, dir, "chassis_asset_tag")?;
    let is_openstack = NAMES.contains(&product.as_str())
        || NAMES.contains(&asset_tag.as_str())
        || ASSET_TAGS.contains(&asset_tag.as_str())
        || vendor == VENDOR;
    if !is_openstack {
        return Ok(Firmware::Silent);
    }
    let uuid = read_attribute(machine, dir, "product_uuid")?.to_lowercase();
    if !slots::is_uuid(&uuid) {
        return Err(format!(
            "{} has {uuid:?} and no UUID",
            dir.join("product_uuid").display()
        ));
    }
    Ok(Firmware::Server {
        uuid,
        may_be_swapped: SWAPPING_VENDORS.iter().any(|name| vendor.starts_with(name)),
    })
}

/// Reads the text of an attribute; empty if the firmware does not have it.
fn read_attribute(machine: &dyn Machine, dir: &Path, name: &str) -> Result<String, String> {
    let path = dir.join(name);
    match machine.read(&path) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;

    use super::*;
    use crate::{HostPaths, Linux};

    const UUID: &str = "6c1f2b9e-0000-4000-8000-000000000001";

    /// Reads the firmware of a machine with these attributes.
    async fn firmware_of(attributes: &[(&str, &str)]) -> Firmware {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let dmi = dir.path().join("class/dmi/id");
        fs::create_dir_all(&dmi).expect("a directory");
        for (name, text) in attributes {
            fs::write(dmi.join(name), format!("{text}\n")).expect("a file");
        }
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            ..HostPaths::default()
        });
        host.firmware().await
    }

    #[rstest]
    #[case("product_name", "OpenStack Nova", true)]
    #[case("product_name", "OpenStack Compute", true)]
    #[case("sys_vendor", "OpenStack Foundation", true)]
    #[case("chassis_asset_tag", "OpenStack Nova", true)]
    #[case("chassis_asset_tag", "OpenStack Compute", true)]
    #[case("chassis_asset_tag", "OpenTelekomCloud", true)]
    #[case("chassis_asset_tag", "SAP CCloud VM", true)]
    #[case("chassis_asset_tag", "HUAWEICLOUD", true)]
    #[case("chassis_asset_tag", "Samsung Cloud Platform", true)]
    #[case("product_name", "HUAWEICLOUD", false)]
    #[case("product_name", "Standard PC (Q35 + ICH9, 2009)", false)]
    #[tokio::test]
    async fn recognizes_openstack_like_ds_identify(
        #[case] attribute: &str,
        #[case] text: &str,
        #[case] is_openstack: bool,
    ) {
        let firmware = firmware_of(&[("product_uuid", &UUID.to_uppercase()), (attribute, text)]).await;
        let expected = Firmware::Server {
            uuid: UUID.to_owned(),
            may_be_swapped: false,
        };
        assert_eq!(firmware, if is_openstack { expected } else { Firmware::Silent });
    }

    #[rstest]
    #[case("VMware, Inc.", true)]
    #[case("Microsoft Corporation", true)]
    #[case("QEMU", false)]
    #[tokio::test]
    async fn byte_order_is_uncertain_on_some_hypervisors(#[case] vendor: &str, #[case] expected: bool) {
        let tag = ("chassis_asset_tag", "SAP CCloud VM");
        let firmware = firmware_of(&[tag, ("sys_vendor", vendor), ("product_uuid", UUID)]).await;
        assert!(
            matches!(firmware, Firmware::Server { may_be_swapped, .. } if may_be_swapped == expected),
            "{firmware:?}"
        );
    }

    #[rstest]
    #[case::missing(&[("product_name", "OpenStack Nova")])]
    #[case::not_a_uuid(&[("product_name", "OpenStack Nova"), ("product_uuid", "Not Settable")])]
    #[tokio::test]
    async fn server_without_valid_uuid_is_unknown(#[case] attributes: &[(&str, &str)]) {
        let firmware = firmware_of(attributes).await;
        assert!(
            matches!(&firmware, Firmware::Unknown(reason) if reason.contains("product_uuid")),
            "{firmware:?}"
        );
    }

    #[test]
    fn unreadable_attribute_is_unknown() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("product_name")).expect("a directory");
        let reason = read_firmware(&Linux::default(), dir.path()).expect_err("a directory is not an attribute");
        assert!(reason.contains("product_name cannot be read"), "{reason}");
    }
}
