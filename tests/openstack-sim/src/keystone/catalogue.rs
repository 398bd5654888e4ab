// SPDX-License-Identifier: Apache-2.0
//! The service catalog, by region.

use serde_json::{Value, json};

use crate::cloud::{Cloud, lock};

/// Returns the catalog of a token for the project.
pub(super) fn catalogue(cloud: &Cloud) -> Value {
    let settings = &cloud.settings;
    let base = &settings.base_url;
    let project = &settings.identity.project_id;
    let other_regions = lock(&settings.other_regions);
    let service = |kind: &str, name: &str, path: String| {
        let ours = (settings.identity.region.as_str(), format!("{base}{path}"));
        // Services of other regions have a path without a handler.
        let others = other_regions.iter();
        let others = others.map(|region| (region.as_str(), format!("{base}/elsewhere{path}")));
        let mut endpoints = Vec::new();
        for (region, url) in others.chain([ours]) {
            for interface in ["public", "internal", "admin"] {
                endpoints.push(json!({
                    "id": format!("{name}-{region}-{interface}"),
                    "interface": interface,
                    "region_id": region,
                    "region": region,
                    "url": url,
                }));
            }
        }
        json!({"id": format!("{name}-service"), "name": name, "type": kind, "endpoints": endpoints})
    };
    json!([
        service("identity", "keystone", "/identity".to_owned()),
        service(
            &cloud.settings.block_storage_type,
            "cinder",
            format!("/volume/v3/{project}")
        ),
        service("compute", "nova", "/compute/v2.1".to_owned()),
    ])
}
