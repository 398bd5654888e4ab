// SPDX-License-Identifier: Apache-2.0
//! The service catalog: a service has several names, and its URL may lack parts that the API needs.

use std::collections::BTreeSet;

use csi_sources::UntrustedText;
use reqwest::Url;
use serde::Deserialize;

use crate::config::PROJECT_NAMES;
use crate::error::EndpointProblem;

/// The number of regions in an error.
const REGIONS_SHOWN: usize = 30;
/// The number of endpoints in an error; a large cloud has hundreds.
const ENDPOINTS_SHOWN: usize = 10;
/// The number of characters of a name in an error.
const NAME_SHOWN: usize = 64;
/// The number of characters of a URL in an error.
const ADDRESS_SHOWN: usize = 160;

/// A service of the catalog.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CatalogEntry {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One endpoint of a service.
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
        let names = [&self.region_id, &self.region].into_iter().flatten();
        names.map(String::as_str).find(|name| !name.is_empty())
    }

    fn has_interface(&self, interface: &str) -> bool {
        self.interface.trim_end_matches("URL") == interface
    }

    fn is_in(&self, region: &str) -> bool {
        [&self.region_id, &self.region]
            .into_iter()
            .flatten()
            .any(|name| name == region)
    }
}

/// The region whose endpoints the driver uses, for all services alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Region {
    /// The region of the configuration.
    Configured(String),
    /// The only region of the catalog. An endpoint without a region belongs to it, also in a catalog without regions.
    Only(Option<String>),
}

impl Region {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Configured(name) => Some(name),
            Self::Only(name) => name.as_deref(),
        }
    }

    fn permits(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Configured(name) => endpoint.is_in(name),
            Self::Only(Some(name)) => endpoint.region().is_none() || endpoint.is_in(name),
            Self::Only(None) => endpoint.region().is_none(),
        }
    }
}

/// The catalog has usable endpoints in several regions, and the configuration selects none of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeveralRegions(pub(crate) String);

/// The only region in which the catalog has endpoints of the services, each with its interface; `None` without any
/// endpoint. Endpoints of another interface or of an unsupported API version do not count, because the driver never
/// uses them.
pub(crate) fn only_region(
    catalog: &[CatalogEntry],
    services: &[(&str, &str)],
    project: &str,
) -> Result<Option<Region>, SeveralRegions> {
    let mut regions = BTreeSet::new();
    let mut is_mixed = false;
    for (service, interface) in services {
        let own: BTreeSet<_> = usable_endpoints(catalog, service, interface, project)
            .map(|(endpoint, _)| endpoint.region())
            .collect();
        // Next to another endpoint of the same service, an endpoint without a region may belong to any region.
        is_mixed |= own.len() > 1;
        regions.extend(own);
    }
    let named: Vec<&str> = regions.iter().copied().flatten().collect();
    if is_mixed || named.len() > 1 {
        let unnamed = regions.contains(&None).then(|| "endpoints without a region".to_owned());
        let named = named.into_iter().map(|name| escape(name, NAME_SHOWN));
        return Err(SeveralRegions(join_limited(named.chain(unnamed), REGIONS_SHOWN)));
    }
    let name = named.first().copied().map(str::to_owned);
    Ok((!regions.is_empty()).then_some(Region::Only(name)))
}

/// The names of a service in catalogs, the official one first (service-types authority).
fn aliases(service: &str) -> &[&str] {
    match service {
        "block-storage" => &["block-storage", "volumev3", "block-store", "volume"],
        _ => &["compute", "computev21"],
    }
}

/// The catalog names of API versions that the driver never uses.
fn old_names(service: &str) -> &[&str] {
    match service {
        "block-storage" => &["volumev2"],
        _ => &["compute_legacy"],
    }
}

/// The URL of a service: the first alias that has an endpoint of this interface and region. `volumev2` and URLs that
/// end in an unsupported API version are ignored. A URL without a version is completed with the supported version and
/// the project, which Cinder before 3.67 needs in every path. Of several endpoints, one with microversions is
/// preferred.
pub(crate) fn find_endpoint(
    catalog: &[CatalogEntry],
    service: &str,
    interface: &str,
    region: &Region,
    project: &str,
) -> Option<Url> {
    let endpoints =
        usable_endpoints(catalog, service, interface, project).filter(|(endpoint, _)| region.permits(endpoint));
    // `min_by_key` returns the first of equal ranks.
    let best = endpoints.min_by_key(|(_, address)| address.rank);
    best.map(|(_, address)| address.url)
}

/// The preference of an API version; the lowest value is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum VersionRank {
    Current,
    /// Nova serves its version 2.1 there too, without microversions.
    Legacy,
}

struct UsableAddress {
    url: Url,
    rank: VersionRank,
}

/// Parses the URL that the configuration has in place of the catalog's.
pub(crate) fn parse_endpoint(text: &str, service: &str, project: &str) -> Option<Url> {
    let text = PROJECT_NAMES
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(name, project));
    complete_url(Url::parse(&text).ok()?, service, project).map(|address| address.url)
}

/// The endpoints of a service and interface with a supported API version, in the order of the aliases.
fn usable_endpoints<'a>(
    catalog: &'a [CatalogEntry],
    service: &'a str,
    interface: &'a str,
    project: &'a str,
) -> impl Iterator<Item = (&'a Endpoint, UsableAddress)> {
    let entries = aliases(service)
        .iter()
        .flat_map(move |alias| catalog.iter().filter(move |entry| entry.kind == *alias));
    entries
        .flat_map(|entry| &entry.endpoints)
        .filter(move |endpoint| endpoint.has_interface(interface))
        .filter_map(move |endpoint| {
            Some((
                endpoint,
                complete_url(Url::parse(&endpoint.url).ok()?, service, project)?,
            ))
        })
}

fn complete_url(mut url: Url, service: &str, project: &str) -> Option<UsableAddress> {
    let version = url
        .path_segments()?
        .find(|segment| is_version(segment))
        .map(str::to_owned);
    let rank = match (service, version.as_deref()) {
        ("compute", Some("v2")) => VersionRank::Legacy,
        _ => VersionRank::Current,
    };
    match (service, version.as_deref()) {
        ("block-storage", None) => {
            url.path_segments_mut().ok()?.pop_if_empty().extend(["v3", project]);
        }
        ("compute", None) => {
            url.path_segments_mut().ok()?.pop_if_empty().push("v2.1");
        }
        ("block-storage", Some("v3")) | ("compute", Some("v2.1" | "v2")) => {}
        _ => return None,
    }
    Some(UsableAddress { url, rank })
}

fn is_version(segment: &str) -> bool {
    segment
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        && segment[1..].chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The URL of the API version itself, without the project. Its document lists the microversions.
pub(crate) fn version_root(mut endpoint: Url) -> Url {
    let keep: Vec<String> = {
        let mut seen = false;
        endpoint
            .path_segments()
            .into_iter()
            .flatten()
            .filter(|segment| !segment.is_empty())
            .take_while(|segment| {
                let was_seen = seen;
                seen |= is_version(segment);
                !was_seen
            })
            .map(str::to_owned)
            .collect()
    };
    if let Ok(mut path) = endpoint.path_segments_mut() {
        path.clear().extend(keep).push("");
    }
    endpoint
}

/// Explains why a catalog has no usable endpoint of a service. Also returns endpoints in one line: those of the
/// service if the catalog has any, else all.
pub(crate) fn explain_missing(
    catalog: &[CatalogEntry],
    service: &str,
    interface: &str,
    region: Option<&Region>,
) -> (EndpointProblem, String) {
    let is_of_service = |kind: &str| aliases(service).contains(&kind) || old_names(service).contains(&kind);
    let all = || {
        let entries = catalog.iter();
        entries.flat_map(|entry| entry.endpoints.iter().map(move |endpoint| (entry, endpoint)))
    };
    let own: Vec<_> = all().filter(|(entry, _)| is_of_service(&entry.kind)).collect();
    let is_in_place =
        |endpoint: &Endpoint| endpoint.has_interface(interface) && region.is_none_or(|region| region.permits(endpoint));
    if own.is_empty() {
        return (EndpointProblem::Service, describe(all()));
    }
    let problem = if own.iter().any(|(_, endpoint)| is_in_place(endpoint)) {
        EndpointProblem::Version
    } else {
        EndpointProblem::Place
    };
    (problem, describe(own.into_iter()))
}

fn describe<'a>(endpoints: impl Iterator<Item = (&'a CatalogEntry, &'a Endpoint)>) -> String {
    let describe_one = |(entry, endpoint): (&CatalogEntry, &Endpoint)| {
        let region = endpoint.region().unwrap_or("-");
        let names = [&entry.kind, &endpoint.interface, region].map(|name| escape(name, NAME_SHOWN));
        format!("{} {}", names.join("/"), describe_address(&endpoint.url))
    };
    let mut all: Vec<String> = endpoints.map(describe_one).collect();
    all.sort();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        join_limited(all.into_iter(), ENDPOINTS_SHOWN)
    }
}

/// Returns a URL without the parts that may be secret: user, password, query and fragment.
fn describe_address(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return "(not a URL)".to_owned();
    };
    // A URL without a host has no user and no password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    escape(url.as_str(), ADDRESS_SHOWN)
}

/// Escapes a text of the catalog into one line of bounded length.
fn escape(text: &str, limit: usize) -> String {
    UntrustedText::with_limit(text, limit).to_string()
}

fn join_limited(names: impl Iterator<Item = String>, limit: usize) -> String {
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(limit);
    names.truncate(limit);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn configured(name: &str) -> Region {
        Region::Configured(name.to_owned())
    }

    /// Endpoints by type, interface and region. An empty string means an endpoint without a region.
    fn endpoints(all: &[(&str, &str, &str)]) -> Vec<CatalogEntry> {
        let endpoints = all.iter().enumerate().map(|(index, (kind, interface, region))| {
            let mut entry = catalog(kind, interface, region, &format!("http://{kind}-{index}.test/"));
            entry.endpoints[0].region = (!region.is_empty()).then(|| (*region).to_owned());
            entry
        });
        endpoints.collect()
    }

    fn choose(catalog: &[CatalogEntry], interface: &str) -> Result<Option<Region>, SeveralRegions> {
        only_region(catalog, &[("block-storage", interface), ("compute", interface)], "p1")
    }

    #[rstest]
    #[case::one_region(&[("volumev3", "public", "A"), ("compute", "public", "A")], Some("A"))]
    #[case::no_regions(&[("volumev3", "public", ""), ("compute", "public", "")], Some(""))]
    #[case::one_without_region(&[("volumev3", "public", ""), ("compute", "public", "A")], Some("A"))]
    #[case::other_interface(&[("volumev3", "public", "A"), ("volumev3", "internal", "B"), ("compute", "public", "A")], Some("A"))]
    #[case::unused_service(&[("volumev3", "public", "A"), ("image", "public", "B"), ("identity", "public", "C")], Some("A"))]
    #[case::unused_alias(&[("volumev2", "public", "B"), ("volumev3", "public", "A"), ("compute", "public", "A")], Some("A"))]
    #[case::two_aliases(&[("volumev3", "public", "A"), ("block-storage", "public", "A")], Some("A"))]
    #[case::nothing(&[("image", "public", "A")], None)]
    fn only_region_of_used_endpoints_is_chosen(#[case] all: &[(&str, &str, &str)], #[case] expected: Option<&str>) {
        let expected = expected.map(|name| Region::Only((!name.is_empty()).then(|| name.to_owned())));
        assert_eq!(choose(&endpoints(all), "public"), Ok(expected));
    }

    #[rstest]
    #[case::both_services(&[("volumev3", "public", "B"), ("volumev3", "public", "A"), ("compute", "public", "A"), ("compute", "public", "B")], "A, B")]
    #[case::one_service(&[("volumev3", "public", "A"), ("compute", "public", "A"), ("compute", "public", "B")], "A, B")]
    #[case::apart(&[("volumev3", "public", "A"), ("compute", "public", "B")], "A, B")]
    #[case::two_aliases(&[("volumev3", "public", "A"), ("block-storage", "public", "B")], "A, B")]
    #[case::letter_case(&[("volumev3", "public", "a"), ("compute", "public", "A")], "A, a")]
    #[case::partly_without(&[("volumev3", "public", "A"), ("volumev3", "public", "")], "A, endpoints without a region")]
    fn several_regions_are_refused_with_their_names(#[case] all: &[(&str, &str, &str)], #[case] names: &str) {
        for all in [all.to_vec(), all.iter().rev().copied().collect()] {
            assert_eq!(
                choose(&endpoints(&all), "public"),
                Err(SeveralRegions(names.to_owned()))
            );
        }
    }

    #[test]
    fn chosen_region_serves_all_services_afterwards() {
        let region = Region::Only(Some("A".to_owned()));
        let catalog = endpoints(&[
            ("volumev3", "public", "B"),
            ("volumev3", "public", "A"),
            ("compute", "public", "B"),
        ]);
        let find = |service| find_endpoint(&catalog, service, "public", &region, "p1");
        assert_eq!(find("block-storage").expect("in A").host_str(), Some("volumev3-1.test"));
        assert_eq!(find("compute"), None);
    }

    #[test]
    fn region_matches_by_id_or_name_exactly() {
        let mut catalog = catalog("compute", "public", "name", "http://c");
        catalog.endpoints[0].region_id = Some("id".to_owned());
        let catalog = [catalog];
        let is_found = |name: &str| find_endpoint(&catalog, "compute", "public", &configured(name), "p1").is_some();
        assert!(is_found("id") && is_found("name"));
        assert!(!is_found("ID") && !is_found("nam") && !is_found(""));
    }

    #[test]
    fn hostile_region_names_are_escaped_and_bounded() {
        let many: Vec<String> = (0..1000)
            .map(|n| format!("{n:04}\n\u{1b}{}", "x".repeat(10_000)))
            .collect();
        let all: Vec<_> = many.iter().map(|name| ("compute", "public", name.as_str())).collect();
        let catalog = endpoints(&all);
        let SeveralRegions(names) = choose(&catalog, "public").expect_err("several");
        let (_, endpoints) = explain_missing(&catalog, "compute", "public", None);
        for (text, more) in [(names, "and 970 more"), (endpoints, "and 990 more")] {
            assert!(!text.contains(char::is_control), "{text}");
            assert!(text.len() < 5000 && text.ends_with(more), "{text}");
        }
    }

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
    fn finds_block_storage_by_every_alias(#[case] kind: &str) {
        let catalog = [catalog(kind, "public", "R1", "http://c/volume/v3/p1")];
        let url = find_endpoint(&catalog, "block-storage", "public", &configured("R1"), "p1").expect("found");
        assert_eq!(url.as_str(), "http://c/volume/v3/p1");
    }

    #[rstest]
    #[case("block-storage", "http://c:8776/", "http://c:8776/v3/p1")]
    #[case("block-storage", "http://c/volume/v3", "http://c/volume/v3")]
    #[case("compute", "http://c:8774", "http://c:8774/v2.1")]
    #[case("compute", "http://c/compute/v2.1/p1", "http://c/compute/v2.1/p1")]
    #[case("compute", "https://compute.uk1.test/v2/p1", "https://compute.uk1.test/v2/p1")]
    #[case("compute", "http://c:8774/v2/", "http://c:8774/v2/")]
    #[case("block-storage", "http://c/volume/v3/p1/", "http://c/volume/v3/p1/")]
    fn url_without_version_is_completed(#[case] service: &str, #[case] url: &str, #[case] expected: &str) {
        let catalog = [catalog(service, "public", "R1", url)];
        let url = find_endpoint(&catalog, service, "public", &configured("R1"), "p1").expect("found");
        assert_eq!(url.as_str(), expected);
    }

    #[rstest]
    #[case("block-storage", "http://c:8776/v3/%(project_id)s", Some("http://c:8776/v3/p1"))]
    #[case("block-storage", "http://c:8776/v3/%(tenant_id)s/", Some("http://c:8776/v3/p1/"))]
    #[case("block-storage", "http://c:8776", Some("http://c:8776/v3/p1"))]
    #[case("compute", "http://c/compute/v2.1", Some("http://c/compute/v2.1"))]
    #[case("block-storage", "http://c/v2/p1", None)]
    #[case("compute", "no address", None)]
    fn configured_url_is_completed(#[case] service: &str, #[case] text: &str, #[case] expected: Option<&str>) {
        let url = parse_endpoint(text, service, "p1");
        assert_eq!(url.as_ref().map(Url::as_str), expected);
    }

    #[test]
    fn skips_other_regions_interfaces_and_versions() {
        let catalog = [
            catalog("volumev3", "public", "R2", "http://far/v3/p1"),
            catalog("volumev3", "internal", "R1", "http://inside/v3/p1"),
            catalog("volume", "public", "R1", "http://old/v2/p1"),
        ];
        assert_eq!(
            find_endpoint(&catalog, "block-storage", "public", &configured("R1"), "p1"),
            None
        );
        let inside = find_endpoint(&catalog, "block-storage", "internal", &configured("R1"), "p1").expect("found");
        assert_eq!(inside.host_str(), Some("inside"));
    }

    #[rstest]
    #[case::legacy_first(&["http://c/v2/p1", "http://c/v2.1/p1"], Some("http://c/v2.1/p1"))]
    #[case::legacy_last(&["http://c/v2.1/p1", "http://c/v2/p1"], Some("http://c/v2.1/p1"))]
    #[case::unversioned(&["http://c/v2/p1", "http://c"], Some("http://c/v2.1"))]
    #[case::first_of_equals(&["http://a/v2.1", "http://b/v2.1"], Some("http://a/v2.1"))]
    #[case::legacy_alone(&["http://c/v1.1/p1", "http://c/v2/p1"], Some("http://c/v2/p1"))]
    #[case::too_old(&["http://c/v1.1/p1", "http://c/v3"], None)]
    fn compute_prefers_version_with_microversions(#[case] urls: &[&str], #[case] expected: Option<&str>) {
        let catalog: Vec<_> = urls.iter().map(|url| catalog("compute", "public", "R1", url)).collect();
        let url = find_endpoint(&catalog, "compute", "public", &configured("R1"), "p1");
        assert_eq!(url.as_ref().map(Url::as_str), expected);
        // An endpoint of another region is never used.
        assert_eq!(
            find_endpoint(&catalog, "compute", "public", &configured("R2"), "p1"),
            None
        );
    }

    #[rstest]
    #[case::old_type("block-storage", "volumev2", "http://c/v2/p1", EndpointProblem::Version)]
    #[case::old_version("block-storage", "volume", "http://c/v1/p1", EndpointProblem::Version)]
    #[case::old_compute("compute", "compute", "http://c/v1.1/p1", EndpointProblem::Version)]
    #[case::other_service("block-storage", "compute", "http://c/v2.1", EndpointProblem::Service)]
    #[case::no_url("compute", "compute", "compute.test", EndpointProblem::Version)]
    fn missing_endpoint_is_explained(
        #[case] service: &str,
        #[case] kind: &str,
        #[case] url: &str,
        #[case] expected: EndpointProblem,
    ) {
        let catalog = [catalog(kind, "public", "R1", url)];
        let region = configured("R1");
        let (problem, endpoints) = explain_missing(&catalog, service, "public", Some(&region));
        assert_eq!(problem, expected);
        let shown = if url.contains("://") { url } else { "(not a URL)" };
        assert_eq!(endpoints, format!("{kind}/public/R1 {shown}"));
        if expected == EndpointProblem::Version {
            for (interface, region) in [("internal", "R1"), ("public", "R2")] {
                let (problem, _) = explain_missing(&catalog, service, interface, Some(&configured(region)));
                assert_eq!(problem, EndpointProblem::Place);
            }
        }
    }

    #[test]
    fn lists_only_endpoints_of_service() {
        let catalog = [
            catalog("image", "public", "R1", "http://i"),
            catalog(
                "volumev2",
                "public",
                "R1",
                "http://user:hunter2@c/v2/p1?key=hunter2#hunter2",
            ),
            catalog("volumev3", "public", "R2", "http://c/v3/p1"),
        ];
        let (_, endpoints) = explain_missing(&catalog, "block-storage", "public", Some(&configured("R1")));
        assert_eq!(
            endpoints,
            "volumev2/public/R1 http://c/v2/p1, volumev3/public/R2 http://c/v3/p1"
        );
    }

    #[rstest]
    #[case("http://c/v2/p1", "http://c/v2/")]
    #[case("http://c/volume/v3/p1", "http://c/volume/v3/")]
    #[case("http://c:8774/v2.1", "http://c:8774/v2.1/")]
    #[case("http://c:8774/v2.1/", "http://c:8774/v2.1/")]
    fn version_root_omits_project(#[case] endpoint: &str, #[case] root: &str) {
        assert_eq!(version_root(Url::parse(endpoint).expect("url")).as_str(), root);
    }

    #[test]
    fn empty_catalogue_is_described() {
        let explained = explain_missing(&[], "compute", "public", None);
        assert_eq!(explained, (EndpointProblem::Service, "nothing".to_owned()));
    }
}
