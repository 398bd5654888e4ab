// SPDX-License-Identifier: Apache-2.0
//! The driver's own Secret, with the credentials of the controller pods.

use std::collections::BTreeMap;
use std::path::Path;

use cinder_cloud::config::{ClientCertificate, ClientPem, credentials_hash};
use cinder_cloud::{CloudConfig, Configuration};
use cinder_csi_crds::CinderCSIDriver;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;

use super::metadata::{self, ComponentLabel};
use super::place::Place;
use crate::resolve::{Resolved, name_prefix_of};

/// Mount path of the Secret.
pub(super) const DIRECTORY: &str = "/etc/config";
/// Path of the driver's configuration, for its flag.
pub(super) const CLOUD_CONF_FILE: &str = "/etc/config/cloud.conf";
/// Annotation of the driver's Secret that distinguishes new credentials of the operator from changes by other
/// clients.
pub(super) const CREDENTIALS_HASH_ANNOTATION: &str = "csi.openstack.org/credentials-hash";
/// Annotation of the controller pods with the clouds that they serve. The driver adds and removes clouds only at its
/// start.
pub(super) const CLOUDS_ANNOTATION: &str = "csi.openstack.org/clouds";
/// Annotation of the controller pods with the regions of their clouds. The driver changes a region only at its start.
pub(super) const REGIONS_ANNOTATION: &str = "csi.openstack.org/regions";

const CLOUD_CONF_KEY: &str = "cloud.conf";
const CA_KEY: &str = "ca.crt";
const CLIENT_CERT_KEY: &str = "client.crt";
const CLIENT_KEY_KEY: &str = "client.key";
/// Project and region of each cloud's credentials, by section. The hash excludes it, because the driver does not read
/// it from the Secret.
const PLACES_KEY: &str = "places";
/// Names in the spec of clouds with a different section, by section. The hash excludes it as well.
const NAMES_KEY: &str = "names";

/// Accepted credentials in the format of the driver: a cloud.conf and the files that it references.
#[derive(Clone, Debug)]
pub struct DriverCredentials {
    cloud_conf: SecretString,
    /// Files by key of the Secret.
    files: BTreeMap<String, SecretString>,
    hash: String,
    /// Project and region by section, with "" for a single cloud. Clouds with an unknown place are missing.
    places: BTreeMap<String, Place>,
    /// Names in the spec of clouds with a different section, by section.
    names: BTreeMap<String, String>,
    /// Section of a single cloud, if it differs from its name.
    section: Option<String>,
}

impl DriverCredentials {
    /// Creates credentials from the text of a cloud.conf and optional certificates in PEM. With certificates, the
    /// cloud.conf references /etc/config/ca.crt.
    pub fn new(cloud_conf: SecretString, ca_pem: Option<String>) -> Self {
        let files = ca_pem.map(|pem| (CA_KEY.to_owned(), pem.into()));
        Self::made_of(cloud_conf, files.into_iter().collect())
    }

    fn made_of(cloud_conf: SecretString, files: BTreeMap<String, SecretString>) -> Self {
        let parts = files
            .iter()
            .flat_map(|(key, file)| [key.as_bytes(), file.expose_secret().as_bytes()]);
        let parts: Vec<&[u8]> = std::iter::once(cloud_conf.expose_secret().as_bytes())
            .chain(parts)
            .collect();
        Self {
            hash: credentials_hash(&parts),
            cloud_conf,
            files,
            places: BTreeMap::new(),
            names: BTreeMap::new(),
            section: None,
        }
    }

    /// Creates credentials from the configuration of one cloud. Its inline content becomes files.
    pub fn of_cloud(config: &CloudConfig) -> Self {
        let mut files = BTreeMap::new();
        let text = with_files(config, &mut files, str::to_owned, CloudConfig::to_cloud_conf);
        Self::made_of(text.into(), files)
    }

    /// Merges the credentials of several clouds, by their names in the spec. A single cloud without a section does
    /// not change. `None` for no cloud, and for two clouds with one section, which the driver cannot distinguish.
    pub fn merged(clouds: &BTreeMap<String, Self>) -> Option<Self> {
        if let [only] = clouds.values().collect::<Vec<_>>().as_slice()
            && only.section.is_none()
        {
            return Some((*only).clone());
        }
        let parts: BTreeMap<&str, (&String, &Self)> = clouds
            .iter()
            .map(|(name, part)| (part.section.as_deref().unwrap_or(name), (name, part)))
            .collect();
        if parts.is_empty() || parts.len() < clouds.len() {
            return None;
        }
        let (mut text, mut files) = (String::new(), BTreeMap::new());
        for (index, (section, (_, credentials))) in parts.iter().enumerate() {
            let Some(config) = credentials.config() else { continue };
            // The number preserves the order of the sections for any characters in their names.
            let key = |key: &str| format!("{index:02}-{key}");
            text.push_str(&with_files(&config, &mut files, key, |config, ca| {
                config.to_named_sections(section, ca)
            }));
        }
        let mut merged = Self::made_of(text.into(), files);
        for (section, (name, part)) in parts {
            let place = part.place().map(|place| (section.to_owned(), place.clone()));
            merged.places.extend(place);
            let name = part.section.as_ref().map(|section| (section.clone(), name.clone()));
            merged.names.extend(name);
        }
        Some(merged)
    }

    /// Returns the credentials of each cloud by its name in the spec, with "" for a single cloud without a section.
    pub fn split(&self) -> BTreeMap<String, Self> {
        let clouds = self.clouds();
        if clouds.keys().all(String::is_empty) {
            return BTreeMap::from([(String::new(), self.clone())]);
        }
        let parts = clouds.into_iter().map(|(section, config)| {
            let mut part = Self::of_cloud(&self.inline_files(config));
            let place = self.places.get(&section);
            part.places.extend(place.map(|place| (String::new(), place.clone())));
            match self.names.get(&section) {
                Some(name) => (name.clone(), part.in_section(Some(&section))),
                None => (section, part),
            }
        });
        parts.collect()
    }

    /// Returns the configuration of each cloud, by section.
    fn clouds(&self) -> BTreeMap<String, CloudConfig> {
        let configuration = Configuration::from_cloud_conf(self.cloud_conf.expose_secret(), &[]);
        configuration.map(|all| all.clouds).unwrap_or_default()
    }

    /// Returns the same credentials of a single cloud with a section that differs from its name in the spec.
    #[must_use]
    pub fn in_section(mut self, section: Option<&str>) -> Self {
        self.section = section.map(str::to_owned);
        self
    }

    /// Returns the configuration of a single cloud with its files inline. `None` if it is invalid.
    pub fn config(&self) -> Option<CloudConfig> {
        let config = CloudConfig::from_cloud_conf(self.cloud_conf.expose_secret()).ok()?;
        Some(self.inline_files(config))
    }

    fn inline_files(&self, mut config: CloudConfig) -> CloudConfig {
        let file = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            Some(self.files.get(name)?.expose_secret().to_owned())
        };
        if let Some(pem) = config.tls.ca_file.as_deref().and_then(file) {
            config.tls.ca_file = None;
            config.tls.ca_pem = Some(pem);
        }
        if let Some(client) = &config.tls.client {
            let pair = file(&client.cert_file).zip(file(&client.key_file));
            config.tls.client_pem = pair.map(|(certificate, key)| ClientPem {
                certificate,
                key: key.into(),
            });
            config.tls.client = None;
        }
        config
    }

    /// Returns the same credentials with their project and region. The driver's configuration then includes the
    /// region. A restart cannot select another one after a change of the service catalogue.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        let mut credentials = self.in_region(place.region.as_deref());
        credentials.places = BTreeMap::from([(String::new(), place)]);
        credentials
    }

    /// Returns the same credentials for a region, unless their configuration already has one.
    fn in_region(self, region: Option<&str>) -> Self {
        let config = self.config().filter(|config| config.region.is_none());
        let Some((mut config, region)) = config.zip(region) else {
            return self;
        };
        config.region = Some(region.to_owned());
        Self {
            places: self.places,
            section: self.section,
            ..Self::of_cloud(&config)
        }
    }

    /// Whether these credentials come from `read`, the content of the user's Secret, possibly with the accepted
    /// region.
    pub fn is_from(&self, read: &Self) -> bool {
        let region = self.place().and_then(|place| place.region.as_deref());
        self.hash == read.hash || self.hash == read.clone().in_region(region).hash
    }

    /// Returns the project and region of a single cloud. `None` before its first login.
    pub fn place(&self) -> Option<&Place> {
        self.places.get("")
    }

    /// Returns the project of each cloud by its section, for a flag of the driver.
    pub(super) fn projects(&self) -> Vec<(String, String)> {
        let places = self.places.iter();
        places
            .map(|(cloud, place)| (cloud.clone(), place.project.clone()))
            .collect()
    }

    /// Returns annotations of the controller pods that depend on the credentials. A change replaces the pods.
    pub(super) fn pod_annotations(&self) -> Option<BTreeMap<String, String>> {
        let mut annotations = BTreeMap::new();
        let clouds = self.clouds();
        let sections: Vec<&str> = clouds
            .keys()
            .map(String::as_str)
            .filter(|section| !section.is_empty())
            .collect();
        if !sections.is_empty() {
            annotations.insert(CLOUDS_ANNOTATION.to_owned(), sections.join(","));
        }
        let regions = clouds.iter().filter_map(|(section, config)| {
            let region = config.region.clone()?;
            Some(if section.is_empty() {
                region
            } else {
                format!("{section}={region}")
            })
        });
        let regions: Vec<String> = regions.collect();
        if !regions.is_empty() {
            annotations.insert(REGIONS_ANNOTATION.to_owned(), regions.join(","));
        }
        (!annotations.is_empty()).then_some(annotations)
    }

    /// Reads the driver's Secret. `None` for a Secret that this operator has not written.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let others = data
            .keys()
            .filter(|key| ![CLOUD_CONF_KEY, PLACES_KEY, NAMES_KEY].contains(&key.as_str()));
        let files = others.filter_map(|key| Some((key.clone(), text(key)?.into())));
        let mut credentials = Self::made_of(text(CLOUD_CONF_KEY)?.into(), files.collect());
        credentials.places = map_of(data, PLACES_KEY);
        credentials.names = map_of(data, NAMES_KEY);
        Some(credentials)
    }

    /// SHA-256 of the content, in hexadecimal. Only readers of the Secret can see it.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Reads a map in JSON from the Secret. Empty if it is invalid.
fn map_of<T: DeserializeOwned>(data: &BTreeMap<String, ByteString>, key: &str) -> BTreeMap<String, T> {
    let map = data.get(key).and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
    map.unwrap_or_default()
}

/// Writes a configuration after its inline content has become files of the Secret.
fn with_files(
    config: &CloudConfig,
    files: &mut BTreeMap<String, SecretString>,
    key: impl Fn(&str) -> String,
    write: impl Fn(&CloudConfig, Option<&str>) -> String,
) -> String {
    let path = |key: &str| format!("{DIRECTORY}/{key}");
    let mut config = config.clone();
    let ca = config.tls.ca_pem.take().map(|pem| {
        files.insert(key(CA_KEY), pem.into());
        path(&key(CA_KEY))
    });
    if let Some(client) = config.tls.client_pem.take() {
        files.insert(key(CLIENT_CERT_KEY), client.certificate.into());
        files.insert(key(CLIENT_KEY_KEY), client.key);
        config.tls.client = Some(ClientCertificate {
            cert_file: path(&key(CLIENT_CERT_KEY)).into(),
            key_file: path(&key(CLIENT_KEY_KEY)).into(),
        });
    }
    write(&config, ca.as_deref())
}

/// Name of the driver's Secret.
pub fn cloud_config_name(resolved: &Resolved) -> String {
    format!("{}-cloud-config", resolved.name_prefix)
}

/// Name of the Secret of a driver with an unresolved spec.
pub fn cloud_config_name_of(driver: &CinderCSIDriver) -> String {
    format!("{}-cloud-config", name_prefix_of(driver))
}

pub(super) fn secret(resolved: &Resolved, credentials: &DriverCredentials) -> Secret {
    let mut data = BTreeMap::from([(
        CLOUD_CONF_KEY.to_owned(),
        ByteString(credentials.cloud_conf.expose_secret().as_bytes().to_vec()),
    )]);
    for (key, file) in &credentials.files {
        data.insert(key.clone(), ByteString(file.expose_secret().as_bytes().to_vec()));
    }
    // Serializing a map of strings cannot fail.
    if !credentials.places.is_empty() {
        let places = serde_json::to_vec(&credentials.places).unwrap_or_default();
        data.insert(PLACES_KEY.to_owned(), ByteString(places));
    }
    if !credentials.names.is_empty() {
        let names = serde_json::to_vec(&credentials.names).unwrap_or_default();
        data.insert(NAMES_KEY.to_owned(), ByteString(names));
    }
    let mut metadata = metadata::namespaced(resolved, cloud_config_name(resolved), ComponentLabel::Controller);
    metadata
        .annotations
        .get_or_insert_default()
        .insert(CREDENTIALS_HASH_ANNOTATION.to_owned(), credentials.hash().to_owned());
    Secret {
        metadata,
        // The API server never returns `stringData`, so the operator could not detect changes of it.
        data: Some(data),
        type_: Some("Opaque".into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cinder_cloud::{CloudConfig, Configuration, config::ClientPem};
    use secrecy::ExposeSecret;

    use super::super::place::Place;
    use super::DriverCredentials;
    use crate::resolve::{
        resolve,
        tests::{mk_driver, mk_environment},
    };

    #[test]
    fn hash_separates_configuration_and_certificates() {
        let one = DriverCredentials::new("ab".into(), Some("c".into()));
        let other = DriverCredentials::new("a".into(), Some("bc".into()));

        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.hash(), DriverCredentials::new("ab".into(), Some("c".into())).hash());
    }

    fn mk_cloud(user: &str, ca: Option<&str>) -> CloudConfig {
        let conf = format!(
            "[Global]\nauth-url=https://{user}.example.org\nuser-id={user}\npassword=p\ntenant-id=t\nregion=R\n\
             [Topology]\nzone-map=a=b\n"
        );
        let mut config = CloudConfig::from_cloud_conf(&conf).unwrap();
        config.tls.ca_pem = ca.map(str::to_owned);
        config
    }

    fn place(project: &str) -> Place {
        Place {
            project: project.to_owned(),
            region: Some("R".to_owned()),
        }
    }

    #[test]
    fn merged_clouds_split_into_the_same_credentials() {
        let part = |user: &str, ca: Option<&str>| {
            let part = DriverCredentials::of_cloud(&mk_cloud(user, ca));
            part.at(place(&format!("project of {user}")))
        };
        let clouds = BTreeMap::from([
            ("west".to_owned(), part("w", Some("pem of the west"))),
            ("east".to_owned(), part("e", None)),
            ("east-2".to_owned(), part("e2", Some("pem of the east"))),
        ]);
        let merged = DriverCredentials::merged(&clouds).unwrap();
        let secret = super::secret(&resolve(&mk_driver("d"), &mk_environment()).unwrap(), &merged);
        let read = DriverCredentials::from_secret(&secret).unwrap();
        assert_eq!(read.hash(), merged.hash());
        let parts = read.split();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["east", "east-2", "west"]);
        for (name, part) in parts {
            assert_eq!(part.hash(), clouds[&name].hash(), "{name}");
            assert_eq!(part.place(), clouds[&name].place(), "{name}");
        }
        let annotations = merged.pod_annotations().unwrap();
        assert_eq!(annotations[super::CLOUDS_ANNOTATION], "east,east-2,west");
    }

    #[test]
    fn sections_can_differ_from_cloud_names() {
        let part = |user: &str, section: Option<&str>| {
            let part = DriverCredentials::of_cloud(&mk_cloud(user, Some(user)));
            part.at(place(&format!("project of {user}"))).in_section(section)
        };
        for clouds in [
            vec![("one", part("e", Some("Region One = 1/ü")))],
            vec![
                ("one", part("e", Some("two"))),
                ("two", part("w", Some("one"))),
                ("three", part("n", None)),
            ],
        ] {
            let clouds: BTreeMap<String, DriverCredentials> =
                clouds.into_iter().map(|(name, part)| (name.to_owned(), part)).collect();
            let merged = DriverCredentials::merged(&clouds).unwrap();
            let secret = super::secret(&resolve(&mk_driver("d"), &mk_environment()).unwrap(), &merged);
            let read = DriverCredentials::from_secret(&secret).unwrap();
            assert_eq!(read.hash(), merged.hash());
            let parts = read.split();
            assert_eq!(parts.keys().collect::<Vec<_>>(), clouds.keys().collect::<Vec<_>>());
            for (name, part) in &parts {
                assert_eq!(part.hash(), clouds[name].hash(), "{name}");
                assert_eq!(
                    (part.place(), &part.section),
                    (clouds[name].place(), &clouds[name].section),
                    "{name}"
                );
            }
            // Writing credentials that were read does not change them.
            assert_eq!(DriverCredentials::merged(&parts).unwrap().hash(), merged.hash());
            let section = |name: &String| clouds[name].section.clone().unwrap_or(name.clone());
            let sections: std::collections::BTreeSet<String> = clouds.keys().map(section).collect();
            let projects: std::collections::BTreeSet<String> =
                merged.projects().into_iter().map(|(section, _)| section).collect();
            assert_eq!(projects, sections);
            let sections: Vec<String> = sections.into_iter().collect();
            assert_eq!(
                merged.pod_annotations().unwrap()[super::CLOUDS_ANNOTATION],
                sections.join(",")
            );
        }
    }

    #[test]
    fn rejects_two_clouds_with_one_section() {
        let part = |section: Option<&str>| DriverCredentials::of_cloud(&mk_cloud("e", None)).in_section(section);
        let clouds = BTreeMap::from([("one".to_owned(), part(None)), ("two".to_owned(), part(Some("one")))]);
        assert!(DriverCredentials::merged(&clouds).is_none());
    }

    #[test]
    fn single_cloud_is_unnamed_and_annotated_with_region() {
        let part = DriverCredentials::of_cloud(&mk_cloud("w", Some("pem")));
        let merged = DriverCredentials::merged(&BTreeMap::from([("default".to_owned(), part.clone())])).unwrap();
        assert_eq!(merged.hash(), part.hash());
        assert_eq!(merged.split().into_keys().collect::<Vec<_>>(), [""]);
        let region = BTreeMap::from([(super::REGIONS_ANNOTATION.to_owned(), "R".to_owned())]);
        assert_eq!(merged.pod_annotations(), Some(region));
    }

    #[test]
    fn clouds_are_written_with_accepted_regions() {
        let part = |user: &str, region: Option<&str>, accepted: &str| {
            let mut config = mk_cloud(user, Some("pem"));
            config.region = region.map(str::to_owned);
            let read = DriverCredentials::of_cloud(&config);
            let place = Place {
                project: "p".to_owned(),
                region: Some(accepted.to_owned()),
            };
            let written = read.clone().at(place);
            assert!(written.is_from(&read), "{user}");
            (user.to_owned(), written)
        };
        let clouds = BTreeMap::from([
            part("east", None, "East"),
            part("north", Some("North"), "North"),
            part("west", None, "West"),
        ]);
        let merged = DriverCredentials::merged(&clouds).unwrap();
        let configuration = Configuration::from_cloud_conf(merged.cloud_conf.expose_secret(), &[]).unwrap();
        let regions: Vec<_> = configuration
            .clouds
            .values()
            .filter_map(|cloud| cloud.region.clone())
            .collect();
        assert_eq!(regions, ["East", "North", "West"]);
        for (name, part) in merged.split() {
            assert_eq!(part.hash(), clouds[&name].hash(), "{name}");
        }
        assert_eq!(
            merged.pod_annotations().unwrap()[super::REGIONS_ANNOTATION],
            "east=East,north=North,west=West"
        );
    }

    #[test]
    fn changed_credentials_or_regions_are_detected() {
        let read = |user: &str, region: Option<&str>| {
            let mut config = mk_cloud(user, None);
            config.region = region.map(str::to_owned);
            DriverCredentials::of_cloud(&config)
        };
        let written = read("e", None).at(place("p"));
        assert!(written.is_from(&read("e", None)) && written.is_from(&read("e", Some("R"))));
        assert!(!written.is_from(&read("e", Some("S"))) && !written.is_from(&read("w", None)));
    }

    #[test]
    fn changed_client_key_changes_the_hash() {
        let with = |key: &str| {
            let mut config = mk_cloud("w", None);
            config.tls.client_pem = Some(ClientPem {
                certificate: "certificate".to_owned(),
                key: key.to_owned().into(),
            });
            DriverCredentials::of_cloud(&config)
        };
        let one = with("key-1");
        assert_ne!(one.hash(), with("key-2").hash());
        let config = one.config().unwrap();
        assert_eq!(config.tls.client_pem.unwrap().key.expose_secret(), "key-1");
        assert!(!format!("{one:?}").contains("key-1"));
    }

    #[test]
    fn debug_output_omits_credentials() {
        let credentials = DriverCredentials::new("password = hunter2".into(), None);

        assert!(!format!("{credentials:?}").contains("hunter2"));
    }
}
