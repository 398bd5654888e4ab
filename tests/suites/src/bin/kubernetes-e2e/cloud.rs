// SPDX-License-Identifier: Apache-2.0
//! The OpenStack below the cluster, and its names in StorageClasses.

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use harness::{CloudConfig, ClusterConfig, SimulatorConfig};
use suites::cluster::World;
use suites::simulator::REAL_LATENCIES;

/// The OpenStack whose servers are the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloudKind {
    /// The simulator, with loop devices and the latencies of real services.
    Simulator,
    /// Keystone, Cinder and Nova of `tests/openstack`.
    Real,
}

impl CloudKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Real => "real",
        }
    }
}

/// Names of the cloud for StorageClasses.
#[derive(Debug)]
pub(crate) struct CloudNames {
    /// A zone with several nodes.
    zone: String,
    /// A volume type of every zone.
    anywhere: String,
    /// A volume type for retypes from `anywhere`.
    archive: String,
    /// A volume type with multiattach.
    multiattach: String,
    /// A group type with consistent snapshots.
    group_type: String,
}

impl CloudNames {
    /// Returns the names in the simulator.
    fn of_simulator() -> Self {
        Self {
            zone: "nova".to_owned(),
            anywhere: "fast".to_owned(),
            archive: "slow".to_owned(),
            multiattach: "multi".to_owned(),
            group_type: "consistent".to_owned(),
        }
    }

    /// Returns the names in the cloud below a cluster.
    pub(crate) fn from_world(world: &World, cloud: CloudKind) -> Result<Self> {
        if cloud == CloudKind::Simulator {
            return Ok(Self::of_simulator());
        }
        let openstack = world.openstack()?;
        let zone = world.cluster.first_node()?.zone().to_owned();
        let zones = openstack.zones();
        ensure!(
            zones.contains(&zone),
            "Cinder has no zone {zone}, where the first node is; it has {zones:?}"
        );
        let role = |role: &str| {
            let volume_type = openstack.volume_type(role).map(str::to_owned);
            volume_type.with_context(|| {
                format!("the cloud does not tell which volume type is for `{role}`: it was started by an earlier version; run make openstack-down")
            })
        };
        Ok(Self {
            zone,
            anywhere: role("anywhere")?,
            archive: role("archive")?,
            multiattach: role("multiattach")?,
            group_type: openstack.group_type().to_owned(),
        })
    }

    /// Replaces placeholders in a manifest by the cloud's names.
    pub(crate) fn fill(&self, manifest: &str) -> String {
        let words = [
            ("$ZONE", &self.zone),
            ("$ANYWHERE", &self.anywhere),
            ("$ARCHIVE", &self.archive),
            ("$MULTIATTACH", &self.multiattach),
            ("$GROUP_TYPE", &self.group_type),
        ];
        let filled = |text: String, (word, name): (&str, &String)| text.replace(word, name);
        words.into_iter().fold(manifest.to_owned(), filled)
    }
}

/// Returns a cluster on the simulator with two nodes in one zone and one in another, so that specs can choose.
pub(crate) fn three_nodes() -> ClusterConfig {
    let CloudNames {
        zone,
        anywhere,
        archive,
        multiattach,
        ..
    } = CloudNames::of_simulator();
    let mut config = ClusterConfig::with_nodes(3);
    if let Some(last) = config.nodes.last_mut() {
        "far".clone_into(&mut last.zone);
    }
    let mut args = vec!["--latency".to_owned(), REAL_LATENCIES.to_owned()];
    for zone in [&zone, "far"] {
        args.extend(["--zone".to_owned(), zone.to_owned()]);
    }
    for volume_type in [anywhere, archive, format!("{multiattach},multiattach")] {
        args.extend(["--volume-type".to_owned(), volume_type]);
    }
    config.cloud = CloudConfig::Simulator(SimulatorConfig { args });
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_contain_only_known_placeholders() {
        for manifest in ["ours/driver", "go/classes"] {
            let path = format!("{}/external-storage/{manifest}.yaml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let filled = CloudNames::of_simulator().fill(&text);
            let unresolved: Vec<_> = filled
                .lines()
                .filter(|line| !line.starts_with('#') && line.contains('$'))
                .collect();
            assert!(unresolved.is_empty(), "{manifest}: {unresolved:?}");
            assert!(filled.contains(" fast\n") && filled.contains("[nova]"), "{filled}");
        }
    }
}
