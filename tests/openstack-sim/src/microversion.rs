// SPDX-License-Identifier: Apache-2.0
//! Microversions of the APIs.

use std::fmt;

use crate::api::{Fault, Reply, Request};

/// A version such as 3.42. Ordered by number, so that `>=` tests for a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The supported versions of a service.
#[derive(Debug, Clone)]
pub(crate) struct Versions {
    /// Name of the service in the `OpenStack-API-Version` header.
    pub(crate) service: &'static str,
    /// Older header that contains only the version.
    pub(crate) legacy_header: Option<&'static str>,
    pub(crate) lowest: Version,
    pub(crate) highest: Version,
}

/// Versions of Cinder, which ignores the header with its older service name.
pub(crate) const VOLUME: Versions = Versions {
    service: "volume",
    legacy_header: None,
    lowest: Version(3, 0),
    highest: Version(3, 71),
};

/// Versions of Nova.
pub(crate) const COMPUTE: Versions = Versions {
    service: "compute",
    legacy_header: Some("x-openstack-nova-api-version"),
    lowest: Version(2, 1),
    highest: Version(2, 90),
};

impl Versions {
    /// Limits the versions to this highest one, as in an older cloud.
    pub(crate) fn up_to(&self, highest: Version) -> Self {
        Self {
            service: self.service,
            legacy_header: self.legacy_header,
            lowest: self.lowest,
            highest,
        }
    }

    /// Returns the requested version as text.
    pub(crate) fn requested_version(&self, request: &Request) -> Option<String> {
        let list = request.header("openstack-api-version").unwrap_or_default();
        let named = list.split(',').find_map(|part| {
            let (service, version) = part.trim().split_once(' ')?;
            service
                .eq_ignore_ascii_case(self.service)
                .then(|| version.trim().to_owned())
        });
        named.or_else(|| {
            self.legacy_header
                .and_then(|name| request.header(name))
                .map(str::to_owned)
        })
    }

    /// Returns the version of the response: the requested one, or the lowest by default.
    pub(crate) fn negotiate(&self, request: &Request) -> Result<Version, Fault> {
        let Some(asked) = self.requested_version(request) else {
            return Ok(self.lowest);
        };
        if asked == "latest" {
            return Ok(self.highest);
        }
        let parsed = asked.split_once('.').and_then(|(major, minor)| {
            let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            (plain(major) && plain(minor)).then(|| Some(Version(major.parse().ok()?, minor.parse().ok()?)))?
        });
        let version = parsed.ok_or_else(|| {
            Fault::bad_request(format!(
                "API Version String {asked} is of invalid format. Must be of format MajorNum.MinorNum."
            ))
        })?;
        if version < self.lowest || version > self.highest {
            return Err(Fault::new(
                406,
                format!(
                    "Version {version} is not supported by the API. Minimum is {} and maximum is {}.",
                    self.lowest, self.highest
                ),
            ));
        }
        Ok(version)
    }

    /// Adds the version headers to the response.
    pub(crate) fn stamp(&self, reply: Reply, version: Version) -> Reply {
        let reply = reply
            .header("OpenStack-API-Version", format!("{} {version}", self.service))
            .header("Vary", "OpenStack-API-Version");
        if self.legacy_header.is_some() {
            reply
                .header("X-OpenStack-Nova-API-Version", version.to_string())
                .header("Vary", "X-OpenStack-Nova-API-Version")
        } else {
            reply
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn request(headers: &[(&'static str, &str)]) -> Request {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a header value"));
        }
        Request {
            method: http::Method::GET,
            target: String::new(),
            path: String::new(),
            query: Vec::new(),
            headers: map,
            body: bytes::Bytes::new(),
            id: String::new(),
            work_fails: None,
            lag: std::time::Duration::ZERO,
            reset: crate::listener::Reset::default(),
        }
    }

    #[test]
    fn services_read_only_their_own_headers() {
        let new = "openstack-api-version";
        for (versions, headers, expected) in [
            (VOLUME, &[][..], Version(3, 0)),
            (VOLUME, &[(new, "volume 3.42")][..], Version(3, 42)),
            (VOLUME, &[(new, "compute 2.60,volume 3.42")][..], Version(3, 42)),
            (VOLUME, &[(new, "compute 2.60")][..], Version(3, 0)),
            (VOLUME, &[("x-openstack-volume-api-version", "3.42")][..], Version(3, 0)),
            (VOLUME, &[(new, "volume latest")][..], Version(3, 71)),
            (COMPUTE, &[("x-openstack-nova-api-version", "2.60")][..], Version(2, 60)),
            (
                COMPUTE,
                &[(new, "compute 2.79"), ("x-openstack-nova-api-version", "2.60")][..],
                Version(2, 79),
            ),
        ] {
            assert_eq!(versions.negotiate(&request(headers)), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn refuses_malformed_and_unsupported_versions() {
        for (asked, status) in [
            ("volume 3.72", 406),
            ("volume 4.0", 406),
            ("volume 3", 400),
            ("volume 3.+1", 400),
        ] {
            let fault = VOLUME
                .negotiate(&request(&[("openstack-api-version", asked)]))
                .expect_err(asked);
            assert_eq!(fault.status, status, "{asked}");
        }
    }
}
