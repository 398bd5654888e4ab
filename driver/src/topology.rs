// SPDX-License-Identifier: Apache-2.0
//! Availability zones: chooses Cinder's zone for a new volume, and reports to Kubernetes from where a volume is
//! accessible.
//!
//! Nodes have their Nova zone as a label. A name that is not a valid label value (spaces, umlauts, more than 63
//! characters) is encoded reversibly. Every other name is used unchanged. If Nova and Cinder use different zone names,
//! `zone-map` in `cloud.conf` maps them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cinder_cloud::TopologyOptions;
use csi_proto::csi::v1::{Topology, TopologyRequirement};

use crate::parameters::TOPOLOGY_ZONE;

/// The prefix of an encoded name. A zone whose real name has this prefix is encoded too, so that labels are unique.
const CODED: &str = "x--";
/// The maximum length of a label value in bytes.
const LABEL_LIMIT: usize = 63;
/// The label of regions in the Go driver. Without a configured value, it is the region of the catalogue.
pub const REGION: &str = "topology.kubernetes.io/region";

/// The conversion from the name of a zone to a label value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZoneLabels {
    /// Unchanged if possible, else encoded: `zone one` becomes `x--zone_20one`.
    ///
    /// The encoding is `x--` and the name, in which every byte except letters, digits, `-` and `.` becomes `_` and two
    /// hexadecimal digits.
    #[default]
    Encoded,
    /// As in the Go driver: invalid characters become `-`, and the rest is truncated. Two zones may have the same
    /// label.
    Sanitised,
}

impl ZoneLabels {
    /// Converts the name of a zone to a label value.
    pub fn label(self, zone: &str) -> String {
        match self {
            Self::Encoded => label_value(zone),
            Self::Sanitised => sanitise(zone),
        }
    }
}

impl fmt::Display for ZoneLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoded => "encoded",
            Self::Sanitised => "sanitised",
        })
    }
}

impl FromStr for ZoneLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "encoded" => Ok(Self::Encoded),
            "sanitised" => Ok(Self::Sanitised),
            _ => Err("use encoded or sanitised".into()),
        }
    }
}

/// The zone names of one cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneNames {
    /// Nova's names to Cinder's names.
    map: BTreeMap<String, String>,
    labels: ZoneLabels,
    segments: BTreeMap<String, String>,
}

impl ZoneNames {
    /// Creates the names from the cloud's configuration and the flag for labels.
    pub fn new(options: &TopologyOptions, labels: ZoneLabels) -> Self {
        Self {
            map: options.zone_map.clone(),
            labels,
            segments: options.segments.clone(),
        }
    }

    /// Returns Cinder's name for the zone of nodes with this label. A label that is not mapped and not encoded is the
    /// name itself.
    pub fn storage_zone(&self, label: &str) -> String {
        let mapped = self.map.iter().find(|(nova, _)| self.labels.label(nova) == label);
        match mapped {
            Some((_, cinder)) => cinder.clone(),
            None => zone_of_label(label).unwrap_or_else(|| label.to_owned()),
        }
    }

    /// Returns the topologies from which a volume in Cinder's `zone` is accessible.
    ///
    /// They are the Nova zones that are mapped to it, else the Nova zone of the same name. A Nova zone of the same name
    /// that is mapped to another zone is excluded.
    pub fn topologies_of_zone(&self, zone: Option<&str>) -> Vec<Topology> {
        let Some(zone) = zone.filter(|zone| !zone.is_empty()) else {
            return self.topology_of_cloud();
        };
        let mapped: Vec<&str> = self
            .map
            .iter()
            .filter(|(_, cinder)| *cinder == zone)
            .map(|(nova, _)| nova.as_str())
            .collect();
        let zones = if mapped.is_empty() { vec![zone] } else { mapped };
        let labels = zones.into_iter().map(|zone| self.labels.label(zone));
        labels
            .filter(|label| !label.is_empty())
            .map(|label| self.segment(label))
            .collect()
    }

    /// Returns the topology of the whole cloud; empty if the cloud has no segments.
    fn topology_of_cloud(&self) -> Vec<Topology> {
        let all = Topology {
            segments: self.segments.clone(),
        };
        Some(all).filter(|all| !all.segments.is_empty()).into_iter().collect()
    }

    fn segment(&self, label: String) -> Topology {
        let mut segments = self.segments.clone();
        segments.insert(TOPOLOGY_ZONE.to_owned(), label);
        Topology { segments }
    }

    fn is_same_zone(&self, one: &str, other: &str) -> bool {
        one == other || (self.labels == ZoneLabels::Sanitised && sanitise(one) == sanitise(other))
    }
}

/// The topology segments that distinguish the nodes of one cloud from the nodes of other clouds. Empty if nothing does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudSegments(BTreeMap<String, String>);

impl fmt::Display for CloudSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&marks.join(", "))
    }
}

impl CloudSegments {
    /// Returns the configured segments, else the region of the catalogue.
    pub fn new(options: &TopologyOptions, region: Option<&str>) -> Self {
        if options.segments.is_empty() {
            Self(
                region
                    .map(|region| (REGION.to_owned(), region.to_owned()))
                    .into_iter()
                    .collect(),
            )
        } else {
            Self(options.segments.clone())
        }
    }

    /// Whether nodes with this topology belong to this cloud: they have all marks.
    pub fn matches(&self, topology: &Topology) -> bool {
        let bears = |(key, value): (&String, &String)| topology.segments.get(key) == Some(value);
        !self.0.is_empty() && self.0.iter().all(bears)
    }

    /// Whether nodes with this topology certainly belong to another cloud.
    pub fn excludes(&self, topology: &Topology) -> bool {
        let differs = |(key, value): (&String, &String)| topology.segments.get(key).is_some_and(|found| found != value);
        self.0.iter().any(differs)
    }

    /// Returns the part of a requirement that concerns the nodes of this cloud.
    pub fn restrict(&self, requirement: &TopologyRequirement) -> TopologyRequirement {
        let ours = |topologies: &[Topology]| -> Vec<Topology> {
            let ours = topologies.iter().filter(|topology| !self.excludes(topology));
            ours.cloned().collect()
        };
        TopologyRequirement {
            requisite: ours(&requirement.requisite),
            preferred: ours(&requirement.preferred),
        }
    }
}

/// The zones of a request, in Cinder's names and in order of preference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Zones {
    preferred: Vec<String>,
    requisite: Vec<String>,
    requested: Vec<Topology>,
    /// The segments, except the zone, that all requested nodes share.
    common: BTreeMap<String, String>,
    names: ZoneNames,
}

impl Zones {
    /// Parses the requirement of a request. Topologies without a zone are ignored.
    pub fn from_requirement(requirement: Option<&TopologyRequirement>, names: &ZoneNames) -> Self {
        let Some(requirement) = requirement else {
            return Self {
                names: names.clone(),
                ..Self::default()
            };
        };
        let requested = if requirement.preferred.is_empty() {
            &requirement.requisite
        } else {
            &requirement.preferred
        };
        Self {
            preferred: zones(&requirement.preferred, names),
            requisite: zones(&requirement.requisite, names),
            requested: requested.clone(),
            common: common_region(requirement),
            names: names.clone(),
        }
    }

    /// Returns the best zone: the first preferred one, else the first requisite one.
    pub fn first(&self) -> Option<&str> {
        self.preferred
            .first()
            .or_else(|| self.requisite.first())
            .map(String::as_str)
    }

    /// Returns the permitted zones; empty if every zone is permitted.
    pub fn required(&self) -> &[String] {
        &self.requisite
    }

    /// Whether a volume in Cinder's `zone` is accessible from the required topologies.
    pub fn allows(&self, zone: &str) -> bool {
        self.requisite.is_empty()
            || self
                .requisite
                .iter()
                .any(|required| self.names.is_same_zone(required, zone))
    }

    /// Returns the requested topologies, for a volume with an ignored zone.
    pub fn requested_topology(&self) -> Vec<Topology> {
        self.requested.clone()
    }

    /// Returns the accessible topologies of a volume in Cinder's `zone`: its zone, and the region that all requested
    /// nodes share.
    ///
    /// Without the region, a zone of the same name in another region would match as well.
    pub fn accessible_from(&self, zone: Option<&str>) -> Vec<Topology> {
        let mut answer = self.names.topologies_of_zone(zone);
        for topology in &mut answer {
            for (key, value) in &self.common {
                let own = topology.segments.entry(key.clone());
                own.or_insert_with(|| value.clone());
            }
        }
        answer
    }
}

fn zones(topologies: &[Topology], names: &ZoneNames) -> Vec<String> {
    let mut zones: Vec<String> = Vec::new();
    for label in topologies
        .iter()
        .filter_map(|topology| topology.segments.get(TOPOLOGY_ZONE))
        .filter(|label| !label.is_empty())
    {
        let zone = names.storage_zone(label);
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    zones
}

/// Returns the region if all topologies of a requirement share it.
fn common_region(requirement: &TopologyRequirement) -> BTreeMap<String, String> {
    let mut all = requirement.requisite.iter().chain(&requirement.preferred);
    let region = all.next().and_then(|first| first.segments.get(REGION));
    region
        .filter(|region| all.all(|topology| topology.segments.get(REGION) == Some(region)))
        .map(|region| (REGION.to_owned(), region.clone()))
        .into_iter()
        .collect()
}

/// Converts the name of a zone to a label value: unchanged if it is valid, else encoded.
///
/// Returns an empty text if the encoded name is too long. Such a zone needs another name by `--availability-zone` on
/// its nodes and `zone-map`.
pub fn label_value(zone: &str) -> String {
    if zone.is_empty() || (is_label_value(zone) && !zone.starts_with(CODED)) {
        return zone.to_owned();
    }
    let last = zone.len() - 1;
    let mut value = CODED.to_owned();
    for (at, byte) in zone.bytes().enumerate() {
        // A label value starts and ends with a letter or digit, which hexadecimal digits satisfy.
        if byte.is_ascii_alphanumeric() || (matches!(byte, b'-' | b'.') && at < last) {
            value.push(char::from(byte));
        } else {
            value.push('_');
            for half in [byte >> 4, byte & 15] {
                value.extend(char::from_digit(u32::from(half), 16));
            }
        }
    }
    if value.len() > LABEL_LIMIT {
        String::new()
    } else {
        value
    }
}

/// Decodes the output of [`label_value`]; `None` for a text that it never returns.
pub fn zone_of_label(label: &str) -> Option<String> {
    let Some(coded) = label.strip_prefix(CODED) else {
        return Some(label.to_owned());
    };
    let mut bytes = Vec::with_capacity(coded.len());
    let mut rest = coded.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'_' {
            let mut half = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
            let byte = half()? * 16 + half()?;
            bytes.push(u8::try_from(byte).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let zone = String::from_utf8(bytes).ok()?;
    (label_value(&zone) == label).then_some(zone)
}

fn is_label_value(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_LIMIT
        && end(bytes.first())
        && end(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn sanitise(zone: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '-'
        }
    };
    let value: String = zone.chars().map(allowed).collect();
    let value = value.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let value = value.get(..LABEL_LIMIT).unwrap_or(value);
    value.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests;
