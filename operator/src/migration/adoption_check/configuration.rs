// SPDX-License-Identifier: Apache-2.0
//! The configuration that a container of the driver reads, and the credentials that the spec names.

use std::collections::BTreeMap;

use cinder_csi_crds::{CaBundleKind, CinderCSIDriverSpec};
use cinder_operator_core::migration::check::{
    Authorities, CheckGap, ConfigurationText, NewCredentials, OldConfiguration, OldContainer, VariableValue, Variables,
};
use csi_sources::UntrustedText;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Client;
use secrecy::ExposeSecret as _;

use super::super::gaps::{CORRECT, add_gap};
use super::mounts::{find_file, read_file};
use super::objects::{FileKind, KeyValue, Objects, Unread};

/// The variable with the path of clouds.yaml.
const CLOUDS_FILE_VARIABLE: &str = "OS_CLIENT_CONFIG_FILE";
const CLOUDS_FILE: &str = "/etc/openstack/clouds.yaml";
/// Maximum number of files of one container.
const MOST_FILES: usize = 32;

/// A container of the driver, its pod and its environment.
pub(super) struct Reader<'a> {
    pub(super) pod: &'a PodSpec,
    pub(super) container: &'a Container,
    pub(super) variables: &'a Variables,
    pub(super) known: &'a OldContainer,
}

impl Reader<'_> {
    /// Reads the files of `--cloud-config` and the clouds.yaml files that they name; `None` for a container without
    /// such a file.
    pub(super) async fn configuration(
        &self,
        objects: &mut Objects<'_>,
        gaps: &mut Vec<CheckGap>,
    ) -> Option<OldConfiguration> {
        let paths = self.known.cloud_config();
        if paths.is_empty() {
            if self.known.serves_controller() && !self.known.is_script && !self.known.has_unknown_configuration() {
                let what = format!("the configuration of {}", self.known.place());
                add_gap(gaps, what, "it has no --cloud-config".to_owned(), CORRECT);
            }
            return None;
        }
        let mut texts = Vec::new();
        let mut is_partial = self.known.has_unknown_configuration() || paths.len() > MOST_FILES;
        for path in paths.iter().take(MOST_FILES) {
            match self.read(objects, path).await {
                Ok(text) => texts.push(text),
                Err(unread) => {
                    is_partial = true;
                    self.add_gap(gaps, path, unread);
                }
            }
        }
        if texts.is_empty() {
            return None;
        }
        let mut configuration = OldConfiguration::read(self.known, &texts, is_partial, gaps);
        for file in configuration.clouds_files() {
            let path = file.path.clone().unwrap_or_else(|| self.clouds_file());
            let added = match self.read(objects, &path).await {
                Ok(text) => {
                    let added = configuration.add_clouds_yaml(&file, &text.place, &text.text);
                    added.map_err(|why| Unread::new(format!("{}: {why}", text.place), CORRECT))
                }
                Err(unread) => Err(unread),
            };
            if let Err(unread) = added {
                self.add_gap(gaps, &path, unread);
            }
        }
        for (cloud, path) in configuration.authority_files() {
            let read = self.read(objects, &path).await;
            let read = read.map(|text| Authorities::read(text.text.expose_secret()));
            configuration.add_authorities(&cloud, &read.map_err(|unread| unread.why));
        }
        Some(configuration)
    }

    /// The path of the clouds.yaml for a configuration that does not name one.
    fn clouds_file(&self) -> String {
        match self.variables.get(CLOUDS_FILE_VARIABLE) {
            Some(VariableValue::Plain(path)) if !path.is_empty() => path.clone(),
            _ => CLOUDS_FILE.to_owned(),
        }
    }

    async fn read(&self, objects: &mut Objects<'_>, path: &str) -> Result<ConfigurationText, Unread> {
        let sources = find_file(self.pod, self.container, self.variables, path)?;
        let content = read_file(objects, &sources).await?;
        let text = String::from_utf8(content.bytes)
            .map_err(|_| Unread::new(format!("{} is not text in UTF-8", content.place), CORRECT))?;
        Ok(ConfigurationText {
            place: content.place,
            text: text.into(),
        })
    }

    fn add_gap(&self, gaps: &mut Vec<CheckGap>, path: &str, unread: Unread) {
        let path = UntrustedText::with_limit(path, 200);
        let what = format!("the file {path} of {}", self.known.place());
        add_gap(gaps, what, unread.why, unread.remedy);
    }
}

/// Reads the credentials in the spec, by cloud name.
pub(super) async fn new_credentials(
    client: &Client,
    namespace: &str,
    spec: &CinderCSIDriverSpec,
    gaps: &mut Vec<CheckGap>,
) -> BTreeMap<String, NewCredentials> {
    let mut objects = Objects::new(client, namespace);
    let mut read = BTreeMap::new();
    for cloud in &spec.clouds {
        let reference = &cloud.credentials_secret_ref;
        let place = format!(
            "{}, key {}",
            objects.describe(FileKind::Secret, &reference.name),
            reference.key
        );
        let value = objects.value(FileKind::Secret, &reference.name, &reference.key).await;
        let credentials = match value {
            Ok(KeyValue::Value(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => NewCredentials::read(&place, cloud, text).map_err(|why| Unread::new(why, CORRECT)),
                Err(_) => Err(Unread::new("it is not text in UTF-8", CORRECT)),
            },
            Ok(KeyValue::NoKey) => Err(Unread::new("the Secret does not have the key", CREATE)),
            Ok(KeyValue::NoObject) => Err(Unread::new("the Secret does not exist", CREATE)),
            Err(unread) => Err(unread),
        };
        match credentials {
            Ok(credentials) => {
                read.insert(cloud.name.clone(), credentials);
            }
            Err(unread) => {
                let what = format!("the credentials of spec.clouds[{}] ({place})", cloud.name);
                add_gap(gaps, what, unread.why, unread.remedy);
            }
        }
    }
    read
}

/// Reads the certificates of the clouds' authorities in the spec, by cloud name.
pub(super) async fn new_authorities(
    client: &Client,
    namespace: &str,
    spec: &CinderCSIDriverSpec,
    gaps: &mut Vec<CheckGap>,
) -> BTreeMap<String, Authorities> {
    let mut objects = Objects::new(client, namespace);
    let mut read = BTreeMap::new();
    for cloud in &spec.clouds {
        let Some(reference) = &cloud.ca_bundle_ref else {
            continue;
        };
        let kind = match reference.kind {
            CaBundleKind::ConfigMap => FileKind::ConfigMap,
            CaBundleKind::Secret => FileKind::Secret,
        };
        let value = objects.value(kind, &reference.name, &reference.key).await;
        let unread = match value {
            Ok(KeyValue::Value(bytes)) => {
                let authorities = Authorities::read(&String::from_utf8_lossy(&bytes));
                read.insert(cloud.name.clone(), authorities);
                continue;
            }
            Ok(KeyValue::NoKey) => Unread::new("the object does not have the key", CREATE_BUNDLE),
            Ok(KeyValue::NoObject) => Unread::new("the object does not exist", CREATE_BUNDLE),
            Err(unread) => unread,
        };
        let place = objects.describe(kind, &reference.name);
        let what = format!(
            "the certificates of spec.clouds[{}].caBundleRef ({place}, key {})",
            cloud.name, reference.key
        );
        add_gap(gaps, what, unread.why, unread.remedy);
    }
    read
}

/// The remedy for certificates that do not exist.
const CREATE_BUNDLE: &str = "Create the object that spec.clouds[].caBundleRef names, and repeat the check";
/// The remedy for credentials that do not exist.
const CREATE: &str = "Create the Secret that spec.clouds[].credentialsSecretRef names, and repeat the check";
