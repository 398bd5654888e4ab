// SPDX-License-Identifier: Apache-2.0
//! The configuration of a container of the other installation, as cinder-csi-plugin reads it. Its `Debug` shows no secrets.

use std::collections::{BTreeMap, BTreeSet};

use cinder_cloud::config::{
    Assignment, Interface, UnvalidatedCloud, assignments_of,
    keys::{CLOUD_CONF, Setting as Key, cloud_conf_key, is_foreign_section},
};
use csi_sources::UntrustedText;
use secrecy::{ExposeSecret, SecretString};

use super::addresses::{bare_address, bare_keystone};
use super::authorities::Authorities;
use super::command_line::OldContainer;
use super::go;
use super::identity::{Identity, OldLogin, RefusedPart};
use super::keys::{KeyUse, Setting, display_key, key_use, section_name};
use crate::migration::finding::CheckGap;

/// The remedy of a file that cannot be read.
const CORRECT: &str = "Correct the file";
/// Maximum number of reported unknown keys.
const MOST_UNKNOWN: usize = 50;
/// Maximum number of characters of a name.
const LONGEST_NAME: usize = 100;
/// The highest limit of cinder-csi-plugin, which also replaces an invalid limit.
const HIGHEST_LIMIT: i64 = 256;

/// A `cloud.conf` and its source.
#[derive(Debug, Clone)]
pub struct ConfigurationText {
    /// The object and the key.
    pub place: String,
    pub text: SecretString,
}

/// A clouds.yaml that a `cloud.conf` references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudsFile {
    /// The cloud in the `cloud.conf`.
    pub section: String,
    /// The path. `None` for the default of the program.
    pub path: Option<String>,
    /// The entry of the clouds.yaml. Empty for the only one.
    pub entry: String,
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OldValue {
    pub(super) text: String,
    /// The key as users write it.
    pub(super) key: String,
    pub(super) place: String,
}

/// The settings of one cloud in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OldCloud {
    pub(super) name: String,
    /// Whether the command line contains its name.
    pub(super) is_named: bool,
    /// The login; `None` if it is unknown, or if the configuration has none.
    pub(super) login: Option<OldLogin>,
    /// Keys of the clouds.yaml that this driver refuses, and their source.
    pub(super) refused: Vec<(RefusedPart, String)>,
    /// The settings of `[Global]`, until the clouds.yaml completes them.
    incomplete: Option<UnvalidatedCloud>,
    pub(super) values: BTreeMap<Setting, OldValue>,
    /// The CA certificates, or why they are unknown.
    pub(super) authorities: Option<Result<Authorities, String>>,
    /// The source of `use-clouds`, and the referenced file.
    pub(super) clouds_file: Option<(String, CloudsFile)>,
    /// Whether the complete login is known.
    pub(super) is_complete: bool,
}

/// The configuration that one container reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldConfiguration {
    /// Workload and container.
    pub(super) reader: String,
    pub(super) serves_controller: bool,
    pub(super) serves_node: bool,
    /// Whether a file of the configuration is unknown.
    pub(super) is_partial: bool,
    pub(super) clouds: Vec<OldCloud>,
    /// Keys that neither driver knows, each with its source.
    pub(super) unknown_keys: BTreeSet<(String, String)>,
}

/// The assignments of several files, each with its source.
type Assignments = Vec<(String, Assignment)>;

/// The last value of each key, with its source.
type LastValues = BTreeMap<&'static str, (Option<String>, String)>;

impl OldConfiguration {
    /// Reads the files of a container. Later files override earlier ones. Unreadable parts are added to the gaps.
    /// `is_partial` is true for a container with unknown files.
    pub fn read(
        container: &OldContainer,
        texts: &[ConfigurationText],
        mut is_partial: bool,
        gaps: &mut Vec<CheckGap>,
    ) -> Self {
        let mut assignments = Assignments::new();
        for ConfigurationText { place, text } in texts {
            match assignments_of(text.expose_secret()) {
                Ok(read) => assignments.extend(read.into_iter().map(|one| (place.clone(), one))),
                Err(error) => {
                    is_partial = true;
                    gaps.push(CheckGap {
                        what: place.clone(),
                        why: error.to_string(),
                        remedy: CORRECT,
                    });
                }
            }
        }
        let names = container.cloud_names();
        let is_named = !names.is_empty();
        let mut configuration = Self {
            reader: container.place(),
            serves_controller: container.serves_controller(),
            serves_node: container.serves_node(),
            is_partial,
            clouds: Vec::new(),
            unknown_keys: unknown_keys(&assignments),
        };
        for name in if is_named { names } else { default_names(&assignments) } {
            let cloud = cloud(&name, &assignments, is_partial, gaps);
            configuration.clouds.push(OldCloud { is_named, ..cloud });
        }
        configuration
    }

    /// Returns the clouds.yaml files that complete the configuration.
    pub fn clouds_files(&self) -> Vec<CloudsFile> {
        let files = self.clouds.iter().filter_map(|cloud| cloud.clouds_file.as_ref());
        files.map(|(_, file)| file.clone()).collect()
    }

    /// Completes the cloud of a section from its clouds.yaml. Returns why that is not possible.
    pub fn add_clouds_yaml(&mut self, file: &CloudsFile, place: &str, text: &SecretString) -> Result<(), String> {
        let clouds = self.clouds.iter_mut().filter(|cloud| cloud.name == file.section);
        for cloud in clouds {
            let mut settings = cloud.incomplete.clone().unwrap_or_default();
            let is_own = settings.has_login() && file.entry.is_empty();
            let refused = settings.add_clouds_yaml(text.expose_secret(), &file.entry);
            let refused = refused.map_err(|error| error.to_string())?;
            cloud.incomplete = None;
            cloud.is_complete = refused.is_empty();
            cloud.refused = refused.iter().map(|error| (error.into(), place.to_owned())).collect();
            cloud.login = login(&settings, !is_own).filter(|login| {
                // A refused key may be the cause of a refused login.
                !self.is_partial && (cloud.is_complete || matches!(login, OldLogin::Known(_)))
            });
            cloud.complete(place, &settings);
        }
        Ok(())
    }

    /// Returns the clouds with a CA file, and its path.
    pub fn authority_files(&self) -> Vec<(String, String)> {
        let clouds = self.clouds.iter().filter(|cloud| cloud.authorities.is_none());
        let files = clouds.filter_map(|cloud| {
            let file = cloud.values.get(&Setting::Authorities)?;
            Some((cloud.name.clone(), file.text.clone()))
        });
        files.collect()
    }

    /// Adds the CA certificates of a cloud, or why they are unknown.
    pub fn add_authorities(&mut self, cloud: &str, read: &Result<Authorities, String>) {
        let clouds = self.clouds.iter_mut().filter(|one| one.name == cloud);
        clouds.for_each(|one| one.authorities = Some(read.clone()));
    }
}

impl OldCloud {
    /// Adds the values of an entry of clouds.yaml that the `cloud.conf` lacks. cinder-csi-plugin does not read `verify`.
    fn complete(&mut self, place: &str, settings: &UnvalidatedCloud) {
        let text = |key| settings.text(key).map(str::to_owned);
        let interface = settings.interface().filter(|interface| *interface != Interface::Public);
        let read = [
            (Setting::AuthUrl, text(Key::AuthUrl).as_deref().map(bare_keystone)),
            (Setting::Region, text(Key::Region)),
            (
                Setting::EndpointType,
                interface.map(|interface| interface.as_str().to_owned()),
            ),
            (Setting::Authorities, text(Key::CaFile)),
            // cinder-csi-plugin ignores a certificate without a key.
            (
                Setting::ClientCertificate,
                text(Key::CertFile).filter(|_| settings.text(Key::KeyFile).is_some()),
            ),
        ];
        for (setting, text) in read {
            let Some(text) = text else { continue };
            self.values.entry(setting).or_insert_with(|| OldValue {
                text,
                key: format!("{} of clouds.yaml", setting.yaml_key().unwrap_or_default()),
                place: place.to_owned(),
            });
        }
    }
}

/// Returns the login of complete settings. `is_of_yaml` selects the names of keys.
fn login(settings: &UnvalidatedCloud, is_of_yaml: bool) -> Option<OldLogin> {
    if !settings.has_login() {
        return None;
    }
    Some(match settings.login(is_of_yaml) {
        Ok(auth) => OldLogin::Known(Identity::new(&auth)),
        Err(error) => OldLogin::Refused((&error).into()),
    })
}

fn section_cloud(assignment: &Assignment) -> &str {
    assignment.cloud.as_deref().unwrap_or_default()
}

/// Returns the clouds that a driver without `--cloud-name` serves.
fn default_names(assignments: &Assignments) -> Vec<String> {
    let globals = assignments.iter().filter(|(_, one)| one.section == "global");
    let names: BTreeSet<&str> = globals.map(|(_, one)| section_cloud(one)).collect();
    if names.is_empty() || names.contains("") {
        return vec![String::new()];
    }
    names.into_iter().map(str::to_owned).collect()
}

fn unknown_keys(assignments: &Assignments) -> BTreeSet<(String, String)> {
    let unknown = assignments
        .iter()
        .filter(|(_, one)| !is_foreign_section(&one.section) && cloud_conf_key(&one.section, &one.key).is_none());
    let unknown = unknown.map(|(place, one)| {
        let section = section_name(&one.section);
        let [section, key] = [section, one.key.as_str()].map(|name| UntrustedText::with_limit(name, LONGEST_NAME));
        let subject = match &one.cloud {
            Some(cloud) => format!(
                "[{section} {}] {key}",
                UntrustedText::with_limit(cloud, LONGEST_NAME).quoted()
            ),
            None => format!("[{section}] {key}"),
        };
        (subject, place.clone())
    });
    unknown.take(MOST_UNKNOWN).collect()
}

fn cloud(name: &str, assignments: &Assignments, is_partial: bool, gaps: &mut Vec<CheckGap>) -> OldCloud {
    let (mut last, mut lists) = (
        LastValues::new(),
        BTreeMap::<Setting, (BTreeSet<String>, String)>::new(),
    );
    let mut has_section = false;
    let mut texts = BTreeMap::new();
    for (place, assignment) in assignments {
        let own = section_cloud(assignment) == name;
        has_section |= own && assignment.section == "global";
        if !own && (assignment.section == "global" || assignment.cloud.is_some()) {
            continue;
        }
        let Some(row) = cloud_conf_key(&assignment.section, &assignment.key) else {
            continue;
        };
        if let (Some(key), Some(text)) = (row.setting, &assignment.value) {
            texts.insert(key, text.clone());
        }
        let value = assignment.value.as_ref().map(ExposeSecret::expose_secret);
        match key_use(row) {
            KeyUse::Setting(setting @ (Setting::Segments | Setting::ZoneMap)) => {
                let (values, _) = lists.entry(setting).or_insert_with(|| (BTreeSet::new(), place.clone()));
                values.extend(value.map(str::to_owned));
            }
            KeyUse::Login => {}
            _ => {
                last.insert(row.name(), (Some(value.unwrap_or("true").to_owned()), place.clone()));
            }
        }
    }
    if !name.is_empty() && !has_section && !is_partial {
        gaps.push(CheckGap {
            what: format!(
                "section [Global {}]",
                UntrustedText::with_limit(name, LONGEST_NAME).quoted()
            ),
            why: "the configuration does not have it".to_owned(),
            remedy: CORRECT,
        });
    }
    let mut values = settings(&last, gaps);
    values.extend(lists.into_iter().map(|(setting, (all, place))| {
        let text = all.into_iter().collect::<Vec<_>>().join(", ");
        (setting, old_value(setting.conf_key(), text, &place))
    }));
    let clouds_file = clouds_file(name, &last, gaps);
    let contents = last.get("cafilecontents").and_then(|(value, _)| value.as_deref());
    let contents = contents.filter(|_| !has_text(&last, "ca-file"));
    let own = UnvalidatedCloud::from_texts(texts);
    let is_complete = clouds_file.is_none();
    OldCloud {
        authorities: contents.map(|pem| Ok(Authorities::read(pem))),
        name: name.to_owned(),
        is_named: false,
        login: login(&own, false).filter(|_| is_complete && !is_partial),
        refused: Vec::new(),
        incomplete: (!is_complete).then_some(own),
        values,
        is_complete,
        clouds_file,
    }
}

fn old_value(key: String, text: String, place: &str) -> OldValue {
    OldValue {
        text,
        key,
        place: place.to_owned(),
    }
}

fn clouds_file(name: &str, last: &LastValues, gaps: &mut Vec<CheckGap>) -> Option<(String, CloudsFile)> {
    let (value, place) = last.get("use-clouds")?;
    let is_used = go::parse_conf_bool(value.as_deref());
    if is_used.is_none() {
        gaps.push(refused("[Global] use-clouds", place));
    }
    let text = |key: &str| {
        let value = last.get(key).and_then(|(value, _)| value.clone());
        value.filter(|value| !value.is_empty())
    };
    let file = CloudsFile {
        section: name.to_owned(),
        path: text("clouds-file"),
        entry: text("cloud").unwrap_or_default(),
    };
    (is_used == Some(true)).then(|| (place.clone(), file))
}

fn refused(key: &str, place: &str) -> CheckGap {
    CheckGap {
        what: format!("{key} in {place}"),
        why: "the Go driver refuses the value".to_owned(),
        remedy: CORRECT,
    }
}

/// Returns the settings that single values determine.
fn settings(last: &LastValues, gaps: &mut Vec<CheckGap>) -> BTreeMap<Setting, OldValue> {
    let mut settings = BTreeMap::new();
    for (&key, (value, place)) in last {
        let Some(row) = CLOUD_CONF.iter().find(|row| row.name() == key) else {
            continue;
        };
        let KeyUse::Setting(setting) = key_use(row) else {
            continue;
        };
        let text = value.clone().unwrap_or_default();
        let shown = display_key(row);
        let read = match (setting, key) {
            (_, "cafilecontents") if has_text(last, "ca-file") => None,
            (_, "cafilecontents") => (!text.is_empty()).then(|| "certificates in the file itself".to_owned()),
            // The setting takes effect only as a pair.
            (_, "key-file") => None,
            (_, "cert-file") if !has_text(last, "key-file") => None,
            (Setting::SkipsVerification, _) => (text == "true").then_some(text),
            (Setting::AttachLimit, _) => match go::parse_conf_integer(&text) {
                Some(0) => None,
                Some(limit @ 1..=HIGHEST_LIMIT) => Some(limit.to_string()),
                Some(_) => Some(HIGHEST_LIMIT.to_string()),
                None => {
                    gaps.push(refused(&shown, place));
                    None
                }
            },
            // User information in addresses may contain passwords.
            (Setting::AuthUrl, _) => Some(bare_keystone(&text)).filter(|_| !text.is_empty()),
            (setting, _) if setting.is_endpoint() => Some(bare_address(&text)).filter(|_| !text.is_empty()),
            (Setting::SearchOrder, _) => Some(list(&text)).filter(|list| !list.is_empty()),
            (Setting::EndpointType, _) => Some(text.trim_end_matches("URL").to_owned()).filter(|text| !text.is_empty()),
            (setting, _) if is_switch(setting) => {
                let flag = go::parse_conf_bool(Some(&text));
                if flag.is_none() {
                    gaps.push(refused(&shown, place));
                }
                flag.map(|flag| flag.to_string())
            }
            _ => Some(text).filter(|text| !text.is_empty()),
        };
        if let Some(text) = read {
            settings.insert(setting, old_value(shown, text, place));
        }
    }
    settings
}

fn has_text(last: &LastValues, key: &str) -> bool {
    let value = last.get(key).and_then(|(value, _)| value.as_ref());
    value.is_some_and(|value| !value.is_empty())
}

/// Whether the setting is a boolean.
pub(super) fn is_switch(setting: Setting) -> bool {
    matches!(
        setting,
        Setting::SkipsVerification
            | Setting::PublicRoots
            | Setting::HttpEndpoints
            | Setting::Rescan
            | Setting::IgnoreZones
            | Setting::IgnoreMicroversions
    )
}

/// Returns a list in its order, without blanks.
pub(super) fn list(text: &str) -> String {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.collect::<Vec<_>>().join(",")
}
