// SPDX-License-Identifier: Apache-2.0
//! Records the location of the driver and its volumes outside the driver's Secret: in the status of the
//! CinderCSIDriver and in annotations of the CSIDriver object. A restore or a deletion may lose one of them.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{CinderCSIDriverStatus, CloudPlace};
use serde_json::Value;

use crate::manifests::Place;

/// Annotation of the CSIDriver object with the project and region of each cloud, in JSON.
pub const PLACES_ANNOTATION: &str = "csi.openstack.org/places";

/// Maximum length of the annotation, in bytes. It exceeds the size of 16 clouds by far.
const LONGEST_ANNOTATION: usize = 32 * 1024;

/// Project and region of each cloud, by its name in the spec.
pub type Places = BTreeMap<String, Place>;

/// The recorded project and region of one cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecordedPlace {
    /// The cluster contains no sign of earlier credentials of the driver.
    #[default]
    Never,
    /// The driver has had credentials of other clouds, and none of this one.
    NewCloud,
    /// The volumes are in this project and region.
    Known(Place),
    /// The project and region are unknown, with the cause.
    Unknown(String),
}

impl RecordedPlace {
    /// Returns the project and region, if known.
    pub fn known(&self) -> Option<&Place> {
        match self {
            Self::Known(place) => Some(place),
            _ => None,
        }
    }

    /// Whether `place` replaces a recorded or unknown project and region.
    pub fn is_moved_to(&self, place: Option<&Place>) -> bool {
        match self {
            Self::NewCloud => false,
            Self::Known(recorded) => Some(recorded) != place,
            Self::Never | Self::Unknown(_) => true,
        }
    }
}

/// Both records of one driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceRecord {
    status: Places,
    annotation: Places,
    is_damaged: bool,
}

impl PlaceRecord {
    /// Reads both records. `csi_driver` is the CSIDriver object, if it exists.
    pub fn read(status: Option<&CinderCSIDriverStatus>, csi_driver: Option<&Value>) -> Self {
        let status = status.into_iter().flat_map(|status| &status.places);
        let status = status.map(|place| {
            let recorded = Place {
                project: place.project_id.clone(),
                region: place.region.clone(),
            };
            (place.cloud.clone(), recorded)
        });
        let text = csi_driver.and_then(|object| object["metadata"]["annotations"][PLACES_ANNOTATION].as_str());
        let annotation = text.map(|text| {
            Some(text)
                .filter(|text| text.len() <= LONGEST_ANNOTATION)
                .and_then(|text| serde_json::from_str(text).ok())
        });
        Self {
            status: status.collect(),
            is_damaged: annotation == Some(None),
            annotation: annotation.flatten().unwrap_or_default(),
        }
    }

    /// Names of all clouds in either record.
    pub fn clouds(&self) -> BTreeSet<String> {
        self.status.keys().chain(self.annotation.keys()).cloned().collect()
    }

    /// Renames a cloud in the record after a rename in the spec.
    pub fn rename(&mut self, cloud: &str, name: &str) {
        for places in [&mut self.status, &mut self.annotation] {
            if let Some(place) = places.remove(cloud) {
                places.insert(name.to_owned(), place);
            }
        }
    }

    /// Returns the place of a cloud. `secret` is present if the driver's Secret has credentials of the cloud, with
    /// the place in the Secret. `has_run` indicates that the driver has had credentials before.
    pub fn place_of(&self, cloud: &str, secret: Option<Option<&Place>>, has_run: bool) -> RecordedPlace {
        let records = [
            ("status.places", self.status.get(cloud)),
            ("the annotation of the CSIDriver object", self.annotation.get(cloud)),
            ("the driver's Secret", secret.flatten()),
        ];
        let mut records = records.into_iter().filter_map(|(name, place)| Some((name, place?)));
        if let Some((first, place)) = records.next() {
            let mut place = place.clone();
            for (name, other) in records {
                if place.is_another(other) {
                    return RecordedPlace::Unknown(format!(
                        "the records disagree: {first} has {place}, and {name} has {other}"
                    ));
                }
                place.region = place.region.or_else(|| other.region.clone());
            }
            return RecordedPlace::Known(place);
        }
        let has_others = !self.status.is_empty() || !self.annotation.is_empty();
        if secret.is_some() {
            RecordedPlace::Unknown("the project of the credentials that the driver has was never recorded".to_owned())
        } else if self.is_damaged {
            RecordedPlace::Unknown(format!("the annotation {PLACES_ANNOTATION} cannot be read"))
        } else if has_others {
            RecordedPlace::NewCloud
        } else if has_run {
            RecordedPlace::Unknown("the records are missing, although the driver has had credentials".to_owned())
        } else {
            RecordedPlace::Never
        }
    }

    /// Uses the record of the status for both, if the annotation was not read.
    #[must_use]
    pub fn for_both(mut self) -> Self {
        self.annotation.clone_from(&self.status);
        self
    }

    /// Records the place of a cloud.
    pub fn insert(&mut self, cloud: &str, place: &Place) {
        for places in [&mut self.status, &mut self.annotation] {
            places.insert(cloud.to_owned(), place.clone());
        }
    }

    /// Removes the record of a cloud that the driver no longer serves.
    pub fn remove(&mut self, cloud: &str) {
        self.status.remove(cloud);
        self.annotation.remove(cloud);
    }

    /// Returns the record for the status.
    pub fn for_status(&self) -> Vec<CloudPlace> {
        let places = self.status.iter().map(|(cloud, place)| CloudPlace {
            cloud: cloud.clone(),
            project_id: place.project.clone(),
            region: place.region.clone(),
        });
        places.collect()
    }

    /// Returns the record as annotations of the CSIDriver object. Empty for an empty record.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        if self.annotation.is_empty() {
            return BTreeMap::new();
        }
        // Serializing a map of strings cannot fail.
        let text = serde_json::to_string(&self.annotation).unwrap_or_default();
        BTreeMap::from([(PLACES_ANNOTATION.to_owned(), text)])
    }
}

/// The records of the driver after a reconcile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverRecord {
    /// Namespace of the driver's pods.
    pub namespace: Option<String>,
    /// Project and region of each cloud.
    pub places: Vec<CloudPlace>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn mk_place(project: &str, region: Option<&str>) -> Place {
        Place {
            project: project.to_owned(),
            region: region.map(str::to_owned),
        }
    }

    /// Creates both records of cloud `a`, with the projects of the arguments.
    fn mk_record(status: Option<&str>, annotation: Option<&str>) -> PlaceRecord {
        let status = CinderCSIDriverStatus {
            places: status
                .map(|project| CloudPlace {
                    cloud: "a".to_owned(),
                    project_id: project.to_owned(),
                    region: Some("r".to_owned()),
                })
                .into_iter()
                .collect(),
            ..CinderCSIDriverStatus::default()
        };
        let annotation = annotation.map(|project| json!({"a": {"project": project, "region": "r"}}).to_string());
        let object = json!({"metadata": {"annotations": {(PLACES_ANNOTATION): annotation}}});
        PlaceRecord::read(Some(&status), Some(&object))
    }

    #[rstest]
    #[case::both(Some("p"), Some("p"), Some("p"))]
    #[case::status_alone(Some("p"), None, Some("p"))]
    #[case::annotation_alone(None, Some("p"), Some("p"))]
    #[case::disagreement(Some("p"), Some("q"), None)]
    fn place_can_be_read_from_either_record(
        #[case] status: Option<&str>,
        #[case] annotation: Option<&str>,
        #[case] expected: Option<&str>,
    ) {
        let place = mk_record(status, annotation).place_of("a", None, true);
        assert_eq!(place.known().map(|place| place.project.as_str()), expected, "{place:?}");
    }

    #[test]
    fn contradicting_secret_results_in_unknown_place() {
        let other = mk_place("p", Some("s"));
        let place = mk_record(Some("p"), Some("p")).place_of("a", Some(Some(&other)), true);
        assert!(
            matches!(&place, RecordedPlace::Unknown(why) if why.contains("Secret")),
            "{place:?}"
        );
    }

    #[test]
    fn missing_record_is_unknown_after_first_credentials() {
        let empty = PlaceRecord::default();
        assert_eq!(empty.place_of("a", None, false), RecordedPlace::Never);
        assert!(matches!(empty.place_of("a", None, true), RecordedPlace::Unknown(_)));
        assert!(matches!(
            empty.place_of("a", Some(None), false),
            RecordedPlace::Unknown(_)
        ));
        assert_eq!(
            mk_record(Some("p"), None).place_of("b", None, true),
            RecordedPlace::NewCloud
        );
    }

    #[rstest]
    #[case::no_json("nonsense".to_owned())]
    #[case::too_long(json!({"a": {"project": "p".repeat(LONGEST_ANNOTATION)}}).to_string())]
    fn damaged_annotation_is_ignored(#[case] text: String) {
        let object = json!({"metadata": {"annotations": {(PLACES_ANNOTATION): text}}});
        let record = PlaceRecord::read(None, Some(&object));
        assert!(matches!(record.place_of("a", None, false), RecordedPlace::Unknown(_)));
    }

    #[test]
    fn written_record_is_read_again() {
        let mut record = PlaceRecord::default();
        record.insert("a", &mk_place("p", None));
        let object = json!({"metadata": {"annotations": record.annotations()}});
        let status = CinderCSIDriverStatus {
            places: record.for_status(),
            ..CinderCSIDriverStatus::default()
        };
        assert_eq!(PlaceRecord::read(Some(&status), Some(&object)), record);
        record.remove("a");
        assert_eq!(
            (record.annotations(), record.for_status()),
            (BTreeMap::new(), Vec::new())
        );
    }
}
