// SPDX-License-Identifier: Apache-2.0
//! The names of clouds in the spec, in the record of projects and in the driver's Secret.

use std::collections::BTreeMap;

use cinder_csi_crds::Cloud as CloudSpec;
use cinder_operator_core::{manifests::DriverCredentials, record::PlaceRecord};

/// The driver's credentials of this cloud. The only cloud of a driver has no name in its Secret.
pub(crate) fn credentials_of<'a>(
    previous: &'a BTreeMap<String, DriverCredentials>,
    cloud: &CloudSpec,
    is_unnamed: bool,
) -> Option<&'a DriverCredentials> {
    let unnamed = || previous.get("").filter(|_| is_unnamed);
    previous.get(&cloud.name).or_else(unnamed)
}

/// The cloud of the credentials without a name in the driver's Secret: the only recorded cloud, or the first one of the
/// spec if the spec no longer has it.
pub(crate) fn unnamed_cloud<'a>(spec: &'a [CloudSpec], record: &PlaceRecord) -> Option<&'a str> {
    let recorded = record.clouds();
    let is_it = |cloud: &&CloudSpec| recorded.len() == 1 && recorded.contains(&cloud.name);
    let cloud = spec.iter().find(is_it).or(spec.first())?;
    Some(&cloud.name)
}

/// Renames the only recorded cloud after the spec has renamed it.
pub(crate) fn rename_only_cloud(record: &mut PlaceRecord, spec: &[CloudSpec], unnamed: Option<&str>) {
    let clouds: Vec<String> = record.clouds().into_iter().collect();
    let ([only], Some(name)) = (clouds.as_slice(), unnamed) else {
        return;
    };
    if !spec.iter().any(|cloud| cloud.name == *only) {
        record.rename(only, name);
    }
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::manifests::Place;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::alone(&["a"], &["a"], "a")]
    #[case::after_another_one(&["new", "a"], &["a"], "a")]
    #[case::renamed(&["b"], &["a"], "b")]
    #[case::never_recorded(&["a", "b"], &[], "a")]
    fn unnamed_credentials_belong_to_the_recorded_cloud(
        #[case] spec: &[&str],
        #[case] recorded: &[&str],
        #[case] expected: &str,
    ) {
        let spec: Vec<CloudSpec> = spec
            .iter()
            .map(|name| CloudSpec {
                name: (*name).to_owned(),
                ..CloudSpec::from_secret("s")
            })
            .collect();
        let place = Place {
            project: "p".to_owned(),
            region: None,
        };
        let mut record = PlaceRecord::default();
        for name in recorded {
            record.insert(name, &place);
        }
        assert_eq!(unnamed_cloud(&spec, &record), Some(expected));
    }
}
