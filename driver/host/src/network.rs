// SPDX-License-Identifier: Apache-2.0
//! Network interfaces that lead to the network of the server, and never to a pod.

use std::path::Path;

use crate::slots::list_names;
use crate::timing::TIMING;
use crate::{Host, Machine, OffloadError};

/// The deepest stack is a VLAN on a bond on network cards.
const DEEPEST_STACK: u8 = 3;
/// Kinds of interfaces, as `DEVTYPE` of their `uevent`, that only pass packets of the interfaces below them.
const STACKED: [&str; 2] = ["bond", "vlan"];

impl Host {
    /// Returns the number of the network interface with this name or number; `None` for an unknown name.
    pub async fn network_interface(&self, name: &str) -> Result<Option<u32>, OffloadError> {
        if let Ok(number) = name.parse() {
            return Ok(Some(number));
        }
        // The kernel rejects these as names, and the path must stay within the directory.
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Ok(None);
        }
        let interface = self.inner.paths.sys.join("class/net").join(name);
        let machine = self.inner.machine.clone();
        let read = move || read_index(&*machine, &interface);
        self.inner
            .calls
            .run_local("reading a network interface", TIMING.firmware_timeout, read)
            .await
    }

    /// Returns the numbers of the network interfaces that are up and belong to a physical or virtio device. Bounded by
    /// 5 s.
    ///
    /// A pod can answer on its veth, and a virtual machine on its tap device. Bridges, tunnels and macvlan can have
    /// such interfaces below them.
    pub async fn physical_interfaces(&self) -> Result<Vec<u32>, OffloadError> {
        let (machine, dir) = (self.inner.machine.clone(), self.inner.paths.sys.join("class/net"));
        let read = move || {
            let interfaces = list_names(&*machine, &dir).into_iter().map(|name| dir.join(name));
            let usable = interfaces.filter(|interface| {
                read_attribute(&*machine, interface, "operstate") != "down"
                    && is_physical(&*machine, interface, DEEPEST_STACK)
            });
            let mut numbers: Vec<u32> = usable
                .filter_map(|interface| read_index(&*machine, &interface))
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

/// Whether an interface belongs to a device, or is a bond or VLAN on such interfaces alone.
///
/// Servers of Ironic have their addresses on bonds and VLANs, which have no device of their own.
fn is_physical(machine: &dyn Machine, interface: &Path, depth: u8) -> bool {
    if machine.exists(&interface.join("device")) {
        return !is_representor(machine, interface);
    }
    let uevent = read_attribute(machine, interface, "uevent");
    let kind = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    if depth == 0 || !kind.is_some_and(|kind| STACKED.contains(&kind)) {
        return false;
    }
    let mut lower = list_names(machine, interface)
        .into_iter()
        .filter(|name| name.starts_with("lower_"))
        .peekable();
    lower.peek().is_some() && lower.all(|name| is_physical(machine, &interface.join(name), depth - 1))
}

/// Whether an interface is the host's end of a virtual function. It has the device of the network card, but a pod or a virtual
/// machine may be at its other end.
fn is_representor(machine: &dyn Machine, interface: &Path) -> bool {
    let port = read_attribute(machine, interface, "phys_port_name");
    port.contains("vf") || port.contains("sf")
}

fn read_index(machine: &dyn Machine, interface: &Path) -> Option<u32> {
    read_attribute(machine, interface, "ifindex").parse().ok()
}

/// Reads the text of an attribute; empty if the kernel has none for this interface.
fn read_attribute(machine: &dyn Machine, interface: &Path, name: &str) -> String {
    let text = machine.read_to_string(&interface.join(name)).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::HostPaths;

    /// A sysfs directory with network interfaces.
    struct Interfaces(TempDir);

    impl Interfaces {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a temporary directory"))
        }

        fn host(&self) -> Host {
            Host::new(HostPaths {
                sys: self.0.path().into(),
                ..HostPaths::default()
            })
        }

        /// Adds an interface with these attributes. The attribute `device` marks an interface with a device.
        fn add(&self, name: &str, number: u32, attributes: &[(&str, &str)]) -> &Self {
            let interface = self.0.path().join("class/net").join(name);
            fs::create_dir_all(&interface).expect("a directory");
            let number = number.to_string();
            for (file, text) in [("ifindex", number.as_str())].iter().chain(attributes) {
                fs::write(interface.join(file), format!("{text}\n")).expect("a file");
            }
            self
        }

        fn stack(&self, upper: &str, lower: &str) -> &Self {
            let dir = self.0.path().join("class/net");
            symlink(dir.join(lower), dir.join(upper).join(format!("lower_{lower}"))).expect("a link");
            self
        }
    }

    #[tokio::test]
    async fn only_physical_interfaces_reach_the_metadata_service() {
        let interfaces = Interfaces::new();
        interfaces
            .add("lo", 1, &[])
            .add("ens3", 2, &[("device", "virtio0"), ("operstate", "up")])
            .add("ens4", 3, &[("device", "virtio1"), ("operstate", "down")])
            .add("veth1", 4, &[("operstate", "up")])
            .add("cni0", 5, &[("uevent", "DEVTYPE=bridge\nINTERFACE=cni0")])
            .add("vxlan1", 6, &[("uevent", "DEVTYPE=vxlan")])
            .add("pf0vf1", 7, &[("device", "0000:03:00.0"), ("phys_port_name", "pf0vf1")])
            .add("p1", 8, &[("device", "0000:04:00.0"), ("phys_port_name", "p1")]);
        interfaces.stack("cni0", "veth1").stack("vxlan1", "ens3");
        let numbers = interfaces.host().physical_interfaces().await.expect("an answer");
        assert_eq!(numbers, [2, 8]);
    }

    #[tokio::test]
    async fn bonds_and_vlans_need_physical_interfaces_below() {
        let interfaces = Interfaces::new();
        interfaces
            .add("eth0", 1, &[("device", "0000:01:00.0"), ("operstate", "down")])
            .add("eth1", 2, &[("device", "0000:01:00.1"), ("operstate", "down")])
            .add("bond0", 3, &[("uevent", "DEVTYPE=bond")])
            .add("bond0.7", 4, &[("uevent", "INTERFACE=bond0.7\nDEVTYPE=vlan")])
            .add("veth1", 5, &[])
            .add("bond1", 6, &[("uevent", "DEVTYPE=bond")])
            .add("veth1.7", 7, &[("uevent", "DEVTYPE=vlan")])
            .add("bond2", 8, &[("uevent", "DEVTYPE=bond")]);
        interfaces.stack("bond0", "eth0").stack("bond0", "eth1");
        interfaces.stack("bond0.7", "bond0").stack("veth1.7", "veth1");
        interfaces.stack("bond1", "eth0").stack("bond1", "veth1");
        let numbers = interfaces.host().physical_interfaces().await.expect("an answer");
        assert_eq!(numbers, [3, 4]);
    }

    #[rstest]
    #[case("eth0", Some(7))]
    #[case("3", Some(3))]
    #[case("eth1", None)]
    #[case("../eth0", None)]
    #[case("..", None)]
    #[case("", None)]
    #[tokio::test]
    async fn interface_is_found_by_name_or_number(#[case] name: &str, #[case] expected: Option<u32>) {
        let interfaces = Interfaces::new();
        interfaces.add("eth0", 7, &[]);
        let number = interfaces.host().network_interface(name).await.expect("an answer");
        assert_eq!(number, expected);
    }
}
