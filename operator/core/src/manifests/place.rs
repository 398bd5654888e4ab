// SPDX-License-Identifier: Apache-2.0
//! The project and region that credentials lead to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A project in a region. Volumes exist in one place only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Id of the project.
    pub project: String,
    /// Region of the services. `None` if the service catalogue has no region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "project {}", self.project)?;
        self.region
            .iter()
            .try_for_each(|region| write!(f, " in region {region}"))
    }
}

impl Place {
    /// Whether both are certainly the same project and region.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// Whether volumes of this place do not exist in the other one. An unknown region does not count as different.
    pub fn is_another(&self, other: &Self) -> bool {
        let regions = self.region.as_ref().zip(other.region.as_ref());
        self.project != other.project || regions.is_some_and(|(one, other)| one != other)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_same("p", Some("r"), false)]
    #[case::another_project("q", Some("r"), true)]
    #[case::another_region("p", Some("s"), true)]
    #[case::no_region("p", None, false)]
    fn places_compare_project_and_region(#[case] project: &str, #[case] region: Option<&str>, #[case] another: bool) {
        let place = |project: &str, region: Option<&str>| Place {
            project: project.to_owned(),
            region: region.map(str::to_owned),
        };
        let (one, other) = (place("p", Some("r")), place(project, region));
        assert_eq!(one.is_another(&other), another);
        assert_eq!(one.is_same(&other), !another && region.is_some());
    }
}
