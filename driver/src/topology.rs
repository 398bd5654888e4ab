// SPDX-License-Identifier: Apache-2.0
//! Availability zones: which one to ask Cinder for, and what to tell Kubernetes about the volume.
//!
//! Nodes bear their Nova zone as a label. A name that is no label value (spaces, umlauts, more than 63 characters) is written so
//! that it can be read back; every other name stands as it is. Where a cloud's Nova and Cinder name their zones differently,
//! `zone-map` in `cloud.conf` tells which belong together.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cinder_cloud::TopologyOptions;
use csi_proto::csi::v1::{Topology, TopologyRequirement};

use crate::parameters::TOPOLOGY_ZONE;

/// What a coded name begins with. A zone that is really called so is coded too, so that no two zones have one label.
const CODED: &str = "x--";
/// The most bytes of a label's value.
const LABEL_LIMIT: usize = 63;
/// The label that the Go driver's users tell regions by; it is the catalogue's region where nobody says otherwise.
pub const REGION: &str = "topology.kubernetes.io/region";

/// How a zone's name becomes a label's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZoneLabels {
    /// As it is where that is possible, else coded: `x--` and the name with every byte but letters, digits, `-` and `.` as `_` and two
    /// hexadecimal digits, `zone one` as `x--zone_20one`.
    #[default]
    Encoded,
    /// As the Go driver does: what a label may not have becomes `-`, and the rest is cut off. Two zones may get one label.
    Sanitised,
}

impl ZoneLabels {
    /// The label's value for a zone.
    pub fn label(self, zone: &str) -> String {
        match self {
            Self::Encoded => label_value(zone),
            Self::Sanitised => sanitised(zone),
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

/// The names of one cloud's zones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneNames {
    /// From Nova's names to Cinder's.
    map: BTreeMap<String, String>,
    labels: ZoneLabels,
    segments: BTreeMap<String, String>,
}

impl ZoneNames {
    /// As the cloud's configuration and the flags say.
    pub fn new(options: &TopologyOptions, labels: ZoneLabels) -> Self {
        Self {
            map: options.zone_map.clone(),
            labels,
            segments: options.segments.clone(),
        }
    }

    /// Cinder's name of the zone that nodes with this label are in. A label that says nothing is taken for the name.
    pub fn storage_zone(&self, label: &str) -> String {
        let mapped = self.map.iter().find(|(nova, _)| self.labels.label(nova) == label);
        match mapped {
            Some((_, cinder)) => cinder.clone(),
            None => zone_of_label(label).unwrap_or_else(|| label.to_owned()),
        }
    }

    /// From where a volume in Cinder's `zone` can be used: from the Nova zones that are mapped to it, else from the one of its name.
    /// A Nova zone of that name that is mapped elsewhere is not among them.
    pub fn of_zone(&self, zone: Option<&str>) -> Vec<Topology> {
        let Some(zone) = zone.filter(|zone| !zone.is_empty()) else {
            return self.of_cloud();
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

    /// Where volumes of this cloud can be used whatever their zone: nothing is said where the cloud has no segments.
    fn of_cloud(&self) -> Vec<Topology> {
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

    fn same(&self, one: &str, other: &str) -> bool {
        one == other || (self.labels == ZoneLabels::Sanitised && sanitised(one) == sanitised(other))
    }
}

/// By what one cloud's nodes are known from another's. Empty where nothing tells them apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<String, String>);

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&marks.join(", "))
    }
}

impl Marks {
    /// The segments that the configuration names, else the catalogue's region.
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

    /// Whether nodes with these segments are this cloud's: they bear all marks.
    pub fn meet(&self, topology: &Topology) -> bool {
        let bears = |(key, value): (&String, &String)| topology.segments.get(key) == Some(value);
        !self.0.is_empty() && self.0.iter().all(bears)
    }

    /// Whether nodes with these segments are surely another cloud's.
    pub fn exclude(&self, topology: &Topology) -> bool {
        let differs = |(key, value): (&String, &String)| topology.segments.get(key).is_some_and(|found| found != value);
        self.0.iter().any(differs)
    }

    /// What of a requirement is about this cloud's nodes.
    pub fn only(&self, requirement: &TopologyRequirement) -> TopologyRequirement {
        let ours = |topologies: &[Topology]| -> Vec<Topology> {
            let ours = topologies.iter().filter(|topology| !self.exclude(topology));
            ours.cloned().collect()
        };
        TopologyRequirement {
            requisite: ours(&requirement.requisite),
            preferred: ours(&requirement.preferred),
        }
    }
}

/// The zones that a request names, by Cinder's names and in order of preference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Zones {
    preferred: Vec<String>,
    requisite: Vec<String>,
    asked: Vec<Topology>,
    /// What the nodes asked for bear beside the zone and all bear alike.
    common: BTreeMap<String, String>,
    names: ZoneNames,
}

impl Zones {
    /// Reads the requirement of a request. Segments without a zone say nothing about zones.
    pub fn of(requirement: Option<&TopologyRequirement>, names: &ZoneNames) -> Self {
        let Some(requirement) = requirement else {
            return Self {
                names: names.clone(),
                ..Self::default()
            };
        };
        let asked = if requirement.preferred.is_empty() {
            &requirement.requisite
        } else {
            &requirement.preferred
        };
        Self {
            preferred: zones(&requirement.preferred, names),
            requisite: zones(&requirement.requisite, names),
            asked: asked.clone(),
            common: common(requirement),
            names: names.clone(),
        }
    }

    /// The zone to ask for: the first preferred one, else the first requisite one.
    pub fn first(&self) -> Option<&str> {
        self.preferred
            .first()
            .or_else(|| self.requisite.first())
            .map(String::as_str)
    }

    /// The zones of which the volume must be in one; empty when any will do.
    pub fn required(&self) -> &[String] {
        &self.requisite
    }

    /// Whether a volume in Cinder's `zone` can be reached from where it must be.
    pub fn allow(&self, zone: &str) -> bool {
        self.requisite.is_empty() || self.requisite.iter().any(|required| self.names.same(required, zone))
    }

    /// The answer for a volume whose own zone is of no interest: the nodes that were asked for.
    pub fn as_asked(&self) -> Vec<Topology> {
        self.asked.clone()
    }

    /// The answer for a volume in Cinder's `zone`: its zone, and the region or whatever else all nodes asked for have in common. A
    /// zone of the same name elsewhere would do as well otherwise.
    pub fn of_volume(&self, zone: Option<&str>) -> Vec<Topology> {
        let mut answer = self.names.of_zone(zone);
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

/// The segments other than the zone that all nodes of a requirement have in common, if they are of a region.
fn common(requirement: &TopologyRequirement) -> BTreeMap<String, String> {
    let mut all = requirement.requisite.iter().chain(&requirement.preferred);
    let region = all.next().and_then(|first| first.segments.get(REGION));
    region
        .filter(|region| all.all(|topology| topology.segments.get(REGION) == Some(region)))
        .map(|region| (REGION.to_owned(), region.clone()))
        .into_iter()
        .collect()
}

/// A zone's name as a label's value: as it is where that is one, else coded. Empty for a name that is too long even so; such a zone
/// needs another name by `--availability-zone` on its nodes and `zone-map`.
pub fn label_value(zone: &str) -> String {
    if zone.is_empty() || (is_label_value(zone) && !zone.starts_with(CODED)) {
        return zone.to_owned();
    }
    let last = zone.len() - 1;
    let mut value = CODED.to_owned();
    for (at, byte) in zone.bytes().enumerate() {
        // Both ends of a label are letters or digits; hexadecimal digits are.
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

/// The zone that [`label_value`] wrote; `None` for a text that it never writes.
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

fn sanitised(zone: &str) -> String {
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
