// SPDX-License-Identifier: Apache-2.0
//! The proxies between the controller and OpenStack, compared by their values.

use std::collections::BTreeSet;

use cinder_csi_crds::CinderCSIDriverSpec;
use csi_sources::UntrustedText;

use super::addresses::bare_address;
use super::difference::{Difference, Differences};
use super::environment::{Argument, HTTP_PROXY as HTTP, HTTPS_PROXY as HTTPS, NO_PROXY as DIRECT, ProxyVariables};
use super::facts::CheckFacts;
use super::keys::Setting;
use crate::migration::finding::AdoptionFinding;
use crate::text::join_truncated;

/// Hosts without a proxy that are not hosts of a cloud, or that this driver always reaches directly.
const NEAR: [&str; 11] = [
    "localhost",
    "127.0.0.1",
    "127.0.0.0/8",
    "::1",
    "169.254.169.254",
    "[fe80::a9fe:a9fe]",
    "svc",
    "cluster.local",
    "svc.cluster.local",
    "kubernetes",
    "kubernetes.default",
];

/// Compares the proxies of the other installation's controllers with the spec.
pub(super) fn findings(spec: &CinderCSIDriverSpec, facts: &CheckFacts) -> Vec<AdoptionFinding> {
    let mut differences = Differences::default();
    for container in facts.containers.iter().filter(|one| one.serves_controller()) {
        let comparison = ProxyComparison {
            spec,
            old: &container.proxies,
        };
        let place = container.place();
        let names = [HTTPS, HTTP]
            .into_iter()
            .filter(|name| *name == HTTPS || uses_http(spec, facts));
        let proxies = names.filter_map(|name| comparison.compare_proxy(name));
        for difference in proxies.chain(comparison.compare_direct()) {
            differences.add(difference, &place);
        }
    }
    differences.into_findings()
}

/// Whether the driver may send requests without TLS.
fn uses_http(spec: &CinderCSIDriverSpec, facts: &CheckFacts) -> bool {
    spec.clouds.iter().any(|cloud| {
        let Some(credentials) = facts.credentials.get(&cloud.name) else {
            return true;
        };
        let address = credentials.values.get(&Setting::AuthUrl);
        address.is_none_or(|url| !url.starts_with("https://"))
            || credentials.values.contains_key(&Setting::HttpEndpoints)
    })
}

struct ProxyComparison<'a> {
    spec: &'a CinderCSIDriverSpec,
    old: &'a ProxyVariables,
}

impl ProxyComparison<'_> {
    fn compare_proxy(&self, name: &str) -> Option<Difference> {
        let proxy = self.spec.proxy.as_ref();
        let (new, field, kind) = match name {
            HTTPS => (
                proxy.and_then(|proxy| proxy.https_proxy.as_deref()),
                "httpsProxy",
                "https",
            ),
            _ => (proxy.and_then(|proxy| proxy.http_proxy.as_deref()), "httpProxy", "http"),
        };
        let field = format!("spec.proxy.{field}");
        let new = new.map(address);
        let Some(old) = self.old.get(name) else {
            let new = new?;
            let message = format!(
                "the other installation uses no proxy for {kind} addresses, and this driver {}",
                quoted(&new)
            );
            let remedy = format!("Remove {field}, or check that the proxy leads to the cloud");
            return Some(Difference::of_flag(name, message, remedy));
        };
        if let Some(unknown) = unknown(name, old) {
            return Some(unknown);
        }
        let shown = address(&old.text);
        let has_user = old.text.contains('@');
        if !has_user && new.as_ref() == Some(&shown) {
            return None;
        }
        let uses = new.as_deref().map_or_else(|| "none".to_owned(), quoted);
        if !old.secrets.is_empty() {
            let message = format!(
                "the proxy of the other installation comes from a Secret (variable {}) and differs from that of this driver, which uses {uses}",
                old.secrets.join(", ")
            );
            return Some(Difference::of_flag(name, message, format!("Set {field}")));
        }
        if has_user {
            let message = format!(
                "the other installation logs in to the proxy {}, and this driver uses {uses}: it cannot log in to a proxy",
                quoted(&shown)
            );
            let remedy = format!("Set {field} to a proxy that needs no login");
            return Some(Difference::of_flag(name, message, remedy));
        }
        let message = format!(
            "the other installation uses the proxy {} for {kind} addresses, and this driver {uses}",
            quoted(&shown)
        );
        let remedy = format!("Set {field} to {}", UntrustedText::with_limit(&shown, 200));
        Some(Difference::of_flag(name, message, remedy))
    }

    /// Compares the hosts without a proxy, if both sides have a proxy.
    fn compare_direct(&self) -> Vec<Difference> {
        let Some(proxy) = &self.spec.proxy else {
            return Vec::new();
        };
        if ![HTTPS, HTTP].iter().any(|name| self.old.contains_key(name)) {
            return Vec::new();
        }
        let none = Argument::default();
        let old = self.old.get(DIRECT).unwrap_or(&none);
        if let Some(unknown) = unknown(DIRECT, old) {
            return vec![unknown];
        }
        let (old_hosts, new_hosts) = (
            hosts(old.text.split(',')),
            hosts(proxy.no_proxy.iter().map(String::as_str)),
        );
        let mut found = Vec::new();
        let (lost, added) = (uncovered(&old_hosts, &new_hosts), uncovered(&new_hosts, &old_hosts));
        if !lost.is_empty() {
            let shown = if old.secrets.is_empty() {
                joined(&lost)
            } else {
                format!("{} hosts of a Secret (variable {})", lost.len(), old.secrets.join(", "))
            };
            let message =
                format!("the other installation reaches {shown} without the proxy, and this driver through it");
            let remedy = "Add those that the cloud needs to spec.proxy.noProxy";
            found.push(Difference::of_flag(DIRECT, message, remedy));
        }
        if !added.is_empty() {
            let message = format!(
                "this driver reaches {} without the proxy, and the other installation through it",
                joined(&added)
            );
            let remedy = "Remove them from spec.proxy.noProxy, or check that the pods reach them";
            found.push(Difference::of_flag(DIRECT, message, remedy));
        }
        found
    }
}

fn unknown(name: &str, value: &Argument) -> Option<Difference> {
    let (variable, why) = value.unknown.first_key_value()?;
    let why = format!("the value of variable {variable}: {why}");
    let remedy = "Compare the proxies of the other controller with spec.proxy";
    Some(Difference::unknown(format!("the proxy ({name})"), &why, remedy))
}

/// Returns the address of a proxy. Without a scheme it is http.
fn address(text: &str) -> String {
    let text = text.trim();
    if text.contains("://") {
        bare_address(text)
    } else {
        bare_address(&format!("http://{text}"))
    }
}

/// Returns hosts and domains in one spelling. Hosts that do not belong to a cloud are omitted.
fn hosts<'a>(entries: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let entries = entries.map(|entry| {
        let entry = entry.trim().to_lowercase();
        let domain = entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.'));
        domain.map_or_else(|| entry.clone(), str::to_owned)
    });
    let is_far = |entry: &String| !entry.is_empty() && !entry.starts_with('$') && !NEAR.contains(&entry.as_str());
    entries.filter(is_far).collect()
}

/// Returns the entries of one set that no entry of another set covers.
fn uncovered(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    let is_covered = |entry: &str| {
        let mut covers = other.iter();
        covers.any(|known| {
            let is_below = entry
                .strip_suffix(known.as_str())
                .is_some_and(|rest| rest.ends_with('.'));
            known == "*" || known == entry || is_below
        })
    };
    one.iter().filter(|entry| !is_covered(entry)).cloned().collect()
}

fn joined(hosts: &[String]) -> String {
    let shown: Vec<String> = hosts
        .iter()
        .map(|host| UntrustedText::with_limit(host, 200).to_string())
        .collect();
    join_truncated(&shown)
}

fn quoted(text: &str) -> String {
    UntrustedText::with_limit(text, 200).quoted()
}
