// SPDX-License-Identifier: Apache-2.0
//! What the firmware says about this machine (DMI).

#![expect(
    clippy::disallowed_methods,
    reason = "who this machine is is asked once, before there are volumes: no test needs it on another machine"
)]

use std::fs;

use crate::timing::TIMING;
use crate::{Host, OffloadError};

/// Names that Nova, and clouds built of it, give to their machines; the ones that cloud-init knows as well.
const PRODUCTS: [&str; 2] = ["OpenStack Nova", "OpenStack Compute"];
const ASSET_TAGS: [&str; 6] = [
    "OpenStack Nova",
    "OpenStack Compute",
    "OpenTelekomCloud",
    "SAP CCloud VM",
    "HUAWEICLOUD",
    "Samsung Cloud Platform",
];

impl Host {
    /// The machine's UUID in lower case, if the firmware says that it is a server of Nova: there it is the server's id.
    /// Elsewhere it is anything. Bounded by 5 s.
    pub async fn nova_uuid(&self) -> Result<Option<String>, OffloadError> {
        let dir = self.inner.paths.sys.join("class/dmi/id");
        let read = move || {
            let text = |file: &str| {
                fs::read_to_string(dir.join(file))
                    .map(|text| text.trim().to_owned())
                    .unwrap_or_default()
            };
            let is_nova = PRODUCTS.contains(&text("product_name").as_str())
                || text("sys_vendor") == "OpenStack Foundation"
                || ASSET_TAGS.contains(&text("chassis_asset_tag").as_str());
            is_nova
                .then(|| text("product_uuid").to_lowercase())
                .filter(|uuid| !uuid.is_empty())
        };
        self.inner
            .calls
            .run_local("reading the firmware's tables", TIMING.firmware_timeout, read)
            .await
    }

    /// The number of the network interface of this name, or of this number; `None`: there is no such one.
    pub async fn network_interface(&self, name: &str) -> Result<Option<u32>, OffloadError> {
        if let Ok(number) = name.parse() {
            return Ok(Some(number));
        }
        // The kernel takes none of these as a name, and a path must not leave the directory.
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Ok(None);
        }
        let path = self.inner.paths.sys.join("class/net").join(name).join("ifindex");
        let read = move || fs::read_to_string(path).ok()?.trim().parse().ok();
        self.inner
            .calls
            .run_local("reading a network interface", TIMING.firmware_timeout, read)
            .await
    }

    /// Numbers of the network interfaces that are up, the loopback not among them. Bounded by 5 s.
    pub async fn network_interfaces(&self) -> Result<Vec<u32>, OffloadError> {
        let dir = self.inner.paths.sys.join("class/net");
        let read = move || {
            let mut numbers: Vec<u32> = fs::read_dir(dir)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| entry.file_name() != "lo")
                .filter(|entry| {
                    let state = fs::read_to_string(entry.path().join("operstate")).unwrap_or_default();
                    state.trim() != "down"
                })
                .filter_map(|entry| {
                    fs::read_to_string(entry.path().join("ifindex"))
                        .ok()?
                        .trim()
                        .parse()
                        .ok()
                })
                .collect();
            numbers.sort_unstable();
            numbers
        };
        self.inner
            .calls
            .run_local("reading the network interfaces", TIMING.firmware_timeout, read)
            .await
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::HostPaths;

    #[rstest]
    #[case("product_name", "OpenStack Nova", true)]
    #[case("sys_vendor", "OpenStack Foundation", true)]
    #[case("chassis_asset_tag", "OpenTelekomCloud", true)]
    #[case("product_name", "Standard PC (Q35 + ICH9, 2009)", false)]
    #[tokio::test]
    async fn the_uuid_counts_only_where_the_firmware_names_openstack(
        #[case] file: &str,
        #[case] text: &str,
        #[case] counts: bool,
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let dmi = dir.path().join("class/dmi/id");
        fs::create_dir_all(&dmi).expect("a directory");
        fs::write(dmi.join("product_uuid"), "6C1F2B9E-0000-4000-8000-000000000001\n").expect("a file");
        fs::write(dmi.join(file), format!("{text}\n")).expect("a file");
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            ..HostPaths::default()
        });
        let uuid = host.nova_uuid().await.expect("it can be read");
        let expected = counts.then(|| "6c1f2b9e-0000-4000-8000-000000000001".to_owned());
        assert_eq!(uuid, expected);
    }

    #[rstest]
    #[case("eth0", Some(7))]
    #[case("3", Some(3))]
    #[case("eth1", None)]
    #[case("../eth0", None)]
    #[case("..", None)]
    #[case("", None)]
    #[tokio::test]
    async fn an_interface_is_known_by_name_or_number(#[case] name: &str, #[case] number: Option<u32>) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let interface = dir.path().join("class/net/eth0");
        fs::create_dir_all(&interface).expect("a directory");
        fs::write(interface.join("ifindex"), "7\n").expect("a file");
        let host = Host::new(HostPaths {
            sys: dir.path().into(),
            ..HostPaths::default()
        });
        assert_eq!(host.network_interface(name).await.expect("an answer"), number);
    }
}
