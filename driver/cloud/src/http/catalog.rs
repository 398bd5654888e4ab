// SPDX-License-Identifier: Apache-2.0
//! The service catalogue: one service goes by several names, and its address may lack what the API needs.

use reqwest::Url;
use serde::Deserialize;

/// A service of the catalogue.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CatalogEntry {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One address of a service.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Endpoint {
    interface: String,
    url: String,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    region_id: Option<String>,
}

impl Endpoint {
    fn region(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }
}

/// The names of a service in catalogues, the official one first (service-types authority).
fn aliases(service: &str) -> &[&str] {
    match service {
        "block-storage" => &["block-storage", "volumev3", "block-store", "volume"],
        _ => &["compute", "computev21"],
    }
}

/// The address of a service: the first alias that has an endpoint of this interface and region. `volumev2` and addresses that
/// end in an API version older than ours are passed over. An address without a version gets ours, and the project, which
/// Cinder before 3.67 needs in every path.
pub(crate) fn find_endpoint(
    catalog: &[CatalogEntry],
    service: &str,
    interface: &str,
    region: Option<&str>,
    project: &str,
) -> Option<Url> {
    find(catalog, service, interface, region, project).map(|(_, url)| url)
}

/// The region of the address that [`find_endpoint`] gives.
pub(crate) fn find_region(
    catalog: &[CatalogEntry],
    service: &str,
    interface: &str,
    region: Option<&str>,
    project: &str,
) -> Option<String> {
    let (endpoint, _) = find(catalog, service, interface, region, project)?;
    endpoint.region().map(str::to_owned)
}

fn find<'a>(
    catalog: &'a [CatalogEntry],
    service: &str,
    interface: &str,
    region: Option<&str>,
    project: &str,
) -> Option<(&'a Endpoint, Url)> {
    aliases(service).iter().find_map(|alias| {
        catalog
            .iter()
            .filter(|entry| entry.kind == *alias)
            .flat_map(|entry| &entry.endpoints)
            .filter(|endpoint| endpoint.interface.trim_end_matches("URL") == interface)
            .filter(|endpoint| region.is_none_or(|region| endpoint.region() == Some(region)))
            .find_map(|endpoint| Some((endpoint, versioned(Url::parse(&endpoint.url).ok()?, service, project)?)))
    })
}

fn versioned(mut url: Url, service: &str, project: &str) -> Option<Url> {
    let version = url
        .path_segments()?
        .find(|segment| is_version(segment))
        .map(str::to_owned);
    match (service, version.as_deref()) {
        ("block-storage", None) => {
            url.path_segments_mut().ok()?.pop_if_empty().extend(["v3", project]);
            Some(url)
        }
        ("block-storage", Some("v3")) | ("compute", Some("v2.1")) => Some(url),
        (_, None) => {
            url.path_segments_mut().ok()?.pop_if_empty().push("v2.1");
            Some(url)
        }
        _ => None,
    }
}

fn is_version(segment: &str) -> bool {
    segment
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        && segment[1..].chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The address of the API version itself, which tells the microversions: without the project.
pub(crate) fn version_root(mut endpoint: Url) -> Url {
    let keep: Vec<String> = {
        let mut seen = false;
        endpoint
            .path_segments()
            .into_iter()
            .flatten()
            .filter(|segment| !segment.is_empty())
            .take_while(|segment| {
                let before = seen;
                seen |= is_version(segment);
                !before
            })
            .map(str::to_owned)
            .collect()
    };
    if let Ok(mut path) = endpoint.path_segments_mut() {
        path.clear().extend(keep).push("");
    }
    endpoint
}

/// All endpoints in one line, for an error.
pub(crate) fn describe(catalog: &[CatalogEntry]) -> String {
    let mut all: Vec<String> = catalog
        .iter()
        .flat_map(|entry| {
            entry.endpoints.iter().map(|endpoint| {
                format!(
                    "{}/{}/{}",
                    entry.kind,
                    endpoint.interface,
                    endpoint.region().unwrap_or("-")
                )
            })
        })
        .collect();
    all.sort();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn catalog(kind: &str, interface: &str, region: &str, url: &str) -> CatalogEntry {
        CatalogEntry {
            kind: kind.to_owned(),
            endpoints: vec![Endpoint {
                interface: interface.to_owned(),
                url: url.to_owned(),
                region: Some(region.to_owned()),
                region_id: None,
            }],
        }
    }

    #[rstest]
    #[case("block-storage")]
    #[case("volumev3")]
    #[case("block-store")]
    #[case("volume")]
    fn block_storage_is_found_under_every_name(#[case] kind: &str) {
        let catalog = [catalog(kind, "public", "R1", "http://c/volume/v3/p1")];
        let url = find_endpoint(&catalog, "block-storage", "public", Some("R1"), "p1").expect("found");
        assert_eq!(url.as_str(), "http://c/volume/v3/p1");
    }

    #[rstest]
    #[case("block-storage", "http://c:8776/", "http://c:8776/v3/p1")]
    #[case("block-storage", "http://c/volume/v3", "http://c/volume/v3")]
    #[case("compute", "http://c:8774", "http://c:8774/v2.1")]
    #[case("compute", "http://c/compute/v2.1/p1", "http://c/compute/v2.1/p1")]
    fn an_address_without_a_version_gets_ours(#[case] service: &str, #[case] url: &str, #[case] expected: &str) {
        let catalog = [catalog(service, "public", "R1", url)];
        let found = find_endpoint(&catalog, service, "public", None, "p1").expect("found");
        assert_eq!(found.as_str(), expected);
    }

    #[test]
    fn other_regions_interfaces_and_old_versions_are_passed_over() {
        let catalog = [
            catalog("volumev3", "public", "R2", "http://far/v3/p1"),
            catalog("volumev3", "internal", "R1", "http://inside/v3/p1"),
            catalog("volume", "public", "R1", "http://old/v2/p1"),
        ];
        assert_eq!(
            find_endpoint(&catalog, "block-storage", "public", Some("R1"), "p1"),
            None
        );
        let inside = find_endpoint(&catalog, "block-storage", "internal", Some("R1"), "p1").expect("found");
        assert_eq!(inside.host_str(), Some("inside"));
    }

    #[rstest]
    #[case("http://c/volume/v3/p1", "http://c/volume/v3/")]
    #[case("http://c:8774/v2.1", "http://c:8774/v2.1/")]
    #[case("http://c:8774/v2.1/", "http://c:8774/v2.1/")]
    fn the_version_root_has_no_project(#[case] endpoint: &str, #[case] root: &str) {
        assert_eq!(version_root(Url::parse(endpoint).expect("url")).as_str(), root);
    }

    #[test]
    fn the_description_of_an_empty_catalogue_says_so() {
        assert_eq!(describe(&[]), "nothing");
        assert_eq!(
            describe(&[catalog("compute", "public", "R1", "http://c")]),
            "compute/public/R1"
        );
    }
}
