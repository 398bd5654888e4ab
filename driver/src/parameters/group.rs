//! What a VolumeGroupSnapshotClass may ask for.

use std::collections::BTreeMap;

use super::{KUBERNETES_PREFIX, METADATA_CLUSTER};

const GROUP_TYPE: &str = "group-type";
const MEMBERS: &str = "members";
const TOGETHER: &str = "together";
const ONE_BY_ONE: &str = "one-by-one";
const GROUP_SNAPSHOT_NAME: &str = "csi.storage.k8s.io/volumegroupsnapshot/name";
const GROUP_SNAPSHOT_NAMESPACE: &str = "csi.storage.k8s.io/volumegroupsnapshot/namespace";
const GROUP_CONTENT_NAME: &str = "csi.storage.k8s.io/volumegroupsnapshotcontent/name";

/// How the members of a group snapshot are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupMembers {
    /// All at one moment, or not at all.
    Together {
        /// Name or id of the Cinder group type, which must have `consistent_group_snapshot_enabled`. Cinder shows that to
        /// administrators only: for others the class vouches for it.
        group_type: Option<String>,
    },
    /// One after the other: each is good for itself, and they are of several moments.
    OneByOne,
}

/// The parameters of a VolumeGroupSnapshotClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupParameters {
    /// How the members are taken.
    pub members: GroupMembers,
    /// Keys of Kubernetes' own.
    objects: BTreeMap<String, String>,
    unknown: Vec<String>,
}

impl GroupParameters {
    /// Reads the map of a request. The error names the key, what is wrong with it and what is possible.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, String> {
        let (mut group_type, mut one_by_one) = (None, false);
        let (mut objects, mut unknown) = (BTreeMap::new(), Vec::new());
        for (key, value) in parameters {
            match key.as_str() {
                _ if key.starts_with(KUBERNETES_PREFIX) => {
                    objects.insert(key, value);
                }
                // An empty value is no value.
                GROUP_TYPE | MEMBERS if value.is_empty() => {}
                GROUP_TYPE => group_type = Some(value),
                MEMBERS => {
                    one_by_one = match value.as_str() {
                        TOGETHER => false,
                        ONE_BY_ONE => true,
                        other => return Err(format!("{MEMBERS} is {other:?}; use {TOGETHER} or {ONE_BY_ONE}")),
                    };
                }
                _ => unknown.push(key),
            }
        }
        let members = match (one_by_one, group_type) {
            (false, group_type) => GroupMembers::Together { group_type },
            (true, None) => GroupMembers::OneByOne,
            (true, Some(group_type)) => {
                return Err(format!(
                    "{GROUP_TYPE} is {group_type:?} and {MEMBERS} is {ONE_BY_ONE:?}, which uses no group; leave one of them out"
                ));
            }
        };
        Ok(Self {
            members,
            objects,
            unknown,
        })
    }

    /// The keys that nobody knows. They are ignored and named in the log, as those of other classes.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The metadata of each snapshot that is taken one by one: the cluster, and the Kubernetes objects where the snapshotter named them.
    pub fn metadata(&self, cluster: &str) -> BTreeMap<String, String> {
        let objects = [GROUP_SNAPSHOT_NAME, GROUP_SNAPSHOT_NAMESPACE, GROUP_CONTENT_NAME]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), self.objects.get(key)?.clone())));
        std::iter::once((METADATA_CLUSTER.to_owned(), cluster.to_owned()))
            .chain(objects)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn decode(pairs: &[(&str, &str)]) -> Result<GroupParameters, String> {
        let pairs = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        GroupParameters::decode(pairs.collect())
    }

    #[test]
    fn the_group_type_is_read_and_unknown_keys_are_named() {
        let parameters = decode(&[
            ("group-type", "consistent"),
            ("csi.storage.k8s.io/volumegroupsnapshot/name", "x"),
            ("group_type", "typo"),
        ])
        .expect("good");
        let group_type = Some("consistent".to_owned());
        assert_eq!(parameters.members, GroupMembers::Together { group_type });
        assert_eq!(parameters.unknown(), ["group_type"]);
        let metadata = parameters.metadata("kubernetes");
        assert_eq!(metadata["cinder.csi.openstack.org/cluster"], "kubernetes");
        assert_eq!(metadata["csi.storage.k8s.io/volumegroupsnapshot/name"], "x");
    }

    #[rstest]
    #[case(&[])]
    #[case(&[("members", "")])]
    #[case(&[("members", "together")])]
    fn members_are_taken_together_unless_a_class_says_otherwise(#[case] pairs: &[(&str, &str)]) {
        let members = decode(pairs).expect("good").members;
        assert_eq!(members, GroupMembers::Together { group_type: None });
    }

    #[test]
    fn one_by_one_is_asked_for_by_name() {
        let members = decode(&[("members", "one-by-one")]).expect("good").members;
        assert_eq!(members, GroupMembers::OneByOne);
    }

    #[rstest]
    #[case(&[("members", "onebyone")], "together or one-by-one")]
    #[case(&[("members", "one-by-one"), ("group-type", "consistent")], "leave one of them out")]
    fn what_cannot_be_meant_is_refused_with_what_can(#[case] pairs: &[(&str, &str)], #[case] hint: &str) {
        let error = decode(pairs).expect_err("bad");
        assert!(error.contains("members") && error.contains(hint), "{error}");
    }
}
