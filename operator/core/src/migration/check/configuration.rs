// SPDX-License-Identifier: Apache-2.0
//! The differences between the configuration of the other installation and that of this driver.

use cinder_csi_crds::{CinderCSIDriverSpec, Cloud};
use csi_sources::UntrustedText;

use super::authorities::Authorities;
use super::difference::{Difference, Differences};
use super::facts::CheckFacts;
use super::identity::{Identity, OldLogin, RefusedPart, Sameness};
use super::keys::Setting;
use super::old_configuration::{OldCloud, OldConfiguration, OldValue, is_switch, list};
use super::successor::{NewCredentials, NewValue, is_clouds_yaml, new_value};
use crate::cluster::is_object_name;
use crate::migration::finding::{AdoptionFinding, AdoptionFindingReason};

/// Order in which nodes query the sources of their identity.
const SEARCH_ORDER: &str = "configDrive,metadataService";
/// Maximum length of a DNS label, in bytes.
const LONGEST_LABEL: usize = 63;
/// Default type of endpoints.
const ENDPOINT_TYPE: &str = "public";

const USE_CLOUDS: &str = "the clouds.yaml that it reads is not in the Secret, so that the file cannot be used";
const CLOUDS_YAML: &str = "Put clouds.yaml into the Secret and name its key in spec.clouds[].credentialsSecretRef.key";
const NO_FILE: &str = "the pods of this driver have no such file";

/// Values of this driver for the comparison.
struct Successor<'a> {
    spec: &'a CinderCSIDriverSpec,
    cloud: &'a Cloud,
    credentials: Option<&'a NewCredentials>,
    authorities: Option<&'a Authorities>,
}

/// Compares the configurations of the other installation with the spec and its credentials.
pub(super) fn findings(spec: &CinderCSIDriverSpec, facts: &CheckFacts) -> Vec<AdoptionFinding> {
    let mut differences = Differences::default();
    for configuration in &facts.configurations {
        for (key, place) in &configuration.unknown_keys {
            let message = "the key is not known to this driver and has no effect";
            let remedy = "Take it out, or correct it: docs/clouds.md has the keys";
            differences.add(of_key(key, message, remedy), place);
        }
        for old in &configuration.clouds {
            compare_cloud(spec, facts, configuration, old, &mut differences);
        }
    }
    differences.into_findings()
}

fn compare_cloud(
    spec: &CinderCSIDriverSpec,
    facts: &CheckFacts,
    configuration: &OldConfiguration,
    old: &OldCloud,
    differences: &mut Differences,
) {
    if !old.name.is_empty() && !old.is_named && !spec.clouds.iter().any(|cloud| cloud.section_name() == old.name) {
        let name = UntrustedText::new(&old.name);
        let message = "the operator gives the driver the clouds of spec.clouds, and this one is not among them";
        let entry = new_entry(&old.name);
        let remedy =
            format!("Add an entry with {entry} to spec.clouds, with a Secret that has this section as [Global]");
        let subject = format!("[Global {}]", name.quoted());
        differences.add(of_key(subject, message, remedy), &configuration.reader);
    }
    let Some(cloud) = counterpart(spec, &configuration.clouds, old) else {
        if old.name.is_empty() {
            let why = "spec.clouds has several entries, and none is named default";
            let remedy = "Compare its configuration with the entry of spec.clouds that takes its place";
            differences.add(
                Difference::unknown("the cloud without a name", why, remedy),
                &configuration.reader,
            );
        }
        return;
    };
    let new = Successor {
        spec,
        cloud,
        credentials: facts.credentials.get(&cloud.name),
        authorities: facts.authorities.get(&cloud.name),
    };
    if configuration.serves_controller {
        report_refused_keys(old, differences);
        new.compare_login(old, &configuration.reader, differences);
        new.compare_authorities(old, differences);
    }
    for setting in SETTINGS {
        let is_used = if setting.is_of_nodes() {
            configuration.serves_node
        } else {
            configuration.serves_controller
        };
        let value = old.values.get(&setting);
        // The key may be in a part that was not read.
        let is_known =
            value.is_some() || !configuration.is_partial && (old.is_complete || setting.yaml_key().is_none());
        if let Some(difference) = (is_used && is_known).then(|| new.compare(setting, old)).flatten() {
            let place = value.map_or(configuration.reader.as_str(), |value| value.place.as_str());
            differences.add(difference, place);
        }
    }
}

/// Reports keys of the clouds.yaml that this driver refuses, and that cinder-csi-plugin may accept.
fn report_refused_keys(old: &OldCloud, differences: &mut Differences) {
    for (RefusedPart { problem, remedy }, place) in &old.refused {
        let message = format!("this driver refuses a key, whose value is not compared: {problem}");
        differences.add(of_key("a key of clouds.yaml", message, remedy), place);
    }
}

/// All settings, in the order of the findings.
const SETTINGS: [Setting; 20] = [
    Setting::AuthUrl,
    Setting::Region,
    Setting::EndpointType,
    Setting::BlockStorageEndpoint,
    Setting::BlockStorageInterface,
    Setting::ComputeEndpoint,
    Setting::ComputeRegion,
    Setting::ComputeInterface,
    Setting::Authorities,
    Setting::ClientCertificate,
    Setting::SkipsVerification,
    Setting::PublicRoots,
    Setting::HttpEndpoints,
    Setting::AttachLimit,
    Setting::Rescan,
    Setting::IgnoreZones,
    Setting::IgnoreMicroversions,
    Setting::SearchOrder,
    Setting::Segments,
    Setting::ZoneMap,
];

/// Returns the entry of the spec that replaces a cloud.
fn counterpart<'a>(spec: &'a CinderCSIDriverSpec, all: &[OldCloud], old: &OldCloud) -> Option<&'a Cloud> {
    match (spec.clouds.as_slice(), all.len()) {
        ([only], 1) => Some(only),
        (clouds, _) => {
            let name = if old.name.is_empty() { "default" } else { &old.name };
            clouds.iter().find(|cloud| cloud.section_name() == name)
        }
    }
}

/// Returns the fields of a new entry of spec.clouds for a cloud of this name.
pub(super) fn new_entry(name: &str) -> String {
    if name.len() <= LONGEST_LABEL && !name.contains('.') && is_object_name(name) {
        return format!("the name {name}");
    }
    format!("section {} and a name of its own", quoted(name))
}

fn of_key(subject: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Difference {
    Difference::new(AdoptionFindingReason::ConfigurationKey, subject, message, remedy)
}

fn quoted(text: &str) -> String {
    UntrustedText::with_limit(text, 200).quoted()
}

impl Successor<'_> {
    /// Returns the source of the value that this driver uses.
    fn place(&self) -> String {
        match self.credentials {
            Some(credentials) => format!("by spec.clouds[{}] and {}", self.cloud.name, credentials.place),
            None => format!("by spec.clouds[{}]", self.cloud.name),
        }
    }

    fn field(&self, field: &str) -> String {
        format!("spec.clouds[{}].{field}", self.cloud.name)
    }

    /// Compares the types of the logins, and finds a clouds.yaml that the driver does not receive.
    fn compare_login(&self, old: &OldCloud, reader: &str, differences: &mut Differences) {
        if let Some((place, _)) = &old.clouds_file
            && !is_clouds_yaml(self.cloud)
            && self.credentials.is_none()
        {
            differences.add(of_key("[Global] use-clouds", USE_CLOUDS, CLOUDS_YAML), place);
        }
        let login = match &old.login {
            None => return,
            Some(OldLogin::Known(login)) => login,
            Some(OldLogin::Refused(RefusedPart { problem, remedy })) => {
                let message = format!(
                    "this driver refuses the login of the other installation, whose user and project are not compared: {problem}"
                );
                differences.add(of_key("the login", message, remedy), reader);
                return;
            }
        };
        let Some(credentials) = self.credentials else { return };
        for difference in self.compare_identities(login, credentials) {
            differences.add(difference, reader);
        }
    }

    /// Compares the types, the projects and the users of two logins.
    fn compare_identities(&self, old: &Identity, credentials: &NewCredentials) -> Vec<Difference> {
        let (new, place) = (&credentials.login, &credentials.place);
        let secret = self.field("credentialsSecretRef");
        let mut found = Vec::new();
        let project = old.compare_projects(new);
        let is_of_same_kind = old.kind() == new.kind();
        if !is_of_same_kind {
            let limit = match &project {
                Sameness::Unknown(why) => format!(". Whether both have the same project is not known: {why}"),
                _ => String::new(),
            };
            let message = format!(
                "the other installation logs in with {}, and this driver with {} ({place}){limit}",
                old.kind(),
                new.kind()
            );
            let remedy = format!("Check that both have the same project and roles; {secret} names the Secret");
            found.push(of_key("the login", message, remedy));
        }
        match project {
            Sameness::Different(old, new) => {
                let message = format!(
                    "the other installation logs in to the project {old}, and this driver to the project {new} ({place}): it would not \
                     find the existing volumes there"
                );
                let remedy = format!("Put credentials of the same project into the Secret of {secret}");
                let reason = AdoptionFindingReason::OtherProject;
                found.push(Difference::new(reason, "the project of the login", message, remedy));
            }
            Sameness::Unknown(why) if is_of_same_kind => {
                let remedy = format!(
                    "Check that the credentials in the Secret of {secret} belong to the project of the volumes"
                );
                found.push(Difference::unknown("the project of the login", &why, remedy));
            }
            Sameness::Unknown(_) | Sameness::Same => {}
        }
        match old.compare_users(new) {
            Some(Sameness::Different(old, new)) => {
                let message = format!(
                    "the other installation logs in as the user {old}, and this driver as the user {new} ({place})"
                );
                let remedy = "Check that the user has the same roles in the project";
                found.push(of_key("the user of the login", message, remedy));
            }
            Some(Sameness::Unknown(why)) => {
                let remedy =
                    "Check that both are the same user, or that the new user has the same roles in the project";
                found.push(Difference::unknown("the user of the login", &why, remedy));
            }
            Some(Sameness::Same) | None => {}
        }
        found
    }

    /// Compares the CA certificates if both sides have some.
    fn compare_authorities(&self, old: &OldCloud, differences: &mut Differences) {
        let (Some(value), Some(_)) = (old.values.get(&Setting::Authorities), &self.cloud.ca_bundle_ref) else {
            return;
        };
        let field = self.field("caBundleRef");
        let difference = match (&old.authorities, self.authorities) {
            (Some(Ok(old)), Some(new)) => match old.count_missing(new) {
                0 => return,
                count => of_key(
                    value.key.as_str(),
                    format!("{field} lacks {count} of the certificates of {}", quoted(&value.text)),
                    format!("Add them to the object that {field} names, or check that the cloud does not need them"),
                ),
            },
            (Some(Err(why)), _) => Difference::unknown(
                format!("the certificates of {}", quoted(&value.text)),
                why,
                format!("Compare them with those of {field}"),
            ),
            // A gap reports the new certificates, or this check has read neither side.
            _ => return,
        };
        differences.add(difference, &value.place);
    }

    /// Returns the difference in one setting.
    fn compare(&self, setting: Setting, old_cloud: &OldCloud) -> Option<Difference> {
        let new = self.value(setting);
        let old = old_cloud.values.get(&setting);
        let subject = || old.map_or_else(|| setting.conf_key(), |old| old.key.clone());
        let (message, remedy) = match setting {
            setting if setting.is_of_service() => return self.compare_service(setting, old_cloud, &new),
            Setting::Authorities => self.missing_file(old?, &new, "caBundleRef", "Name the certificates in")?,
            Setting::ClientCertificate => self.missing_file(
                old?,
                &new,
                "clientCertSecretRef",
                "Name a Secret of type kubernetes.io/tls in",
            )?,
            Setting::AttachLimit => attach_limit(&old?.text, &new)?,
            Setting::Region if old.is_none() => self.added_region(&new)?,
            // Each service has its own type of endpoints.
            Setting::EndpointType if self.overrides_every_interface() => return None,
            // Without these keys no difference is known. cinder-csi-plugin does not rescan an expanded device. Only this
            // driver reads the last four keys.
            Setting::AuthUrl
            | Setting::Rescan
            | Setting::PublicRoots
            | Setting::HttpEndpoints
            | Setting::Segments
            | Setting::ZoneMap => self.compare_values(setting, &old?.text, &new)?,
            Setting::SearchOrder => self.compare_values(setting, &list(&old?.text), &new)?,
            _ => {
                let text = old.map_or_else(|| default_text(setting), |old| old.text.as_str());
                self.compare_values(setting, text, &new)?
            }
        };
        Some(of_key(subject(), message, remedy))
    }

    fn value(&self, setting: Setting) -> NewValue {
        new_value(self.spec, self.cloud, self.credentials, setting)
    }

    fn overrides_every_interface(&self) -> bool {
        let all = [Setting::BlockStorageInterface, Setting::ComputeInterface];
        all.into_iter()
            .all(|setting| matches!(self.value(setting), NewValue::Set(_)))
    }

    /// Returns the message and remedy for a region that only this driver has.
    fn added_region(&self, new: &NewValue) -> Option<(String, String)> {
        let NewValue::Set(new) = new else { return None };
        let message = format!(
            "the other installation names no region and uses the first endpoint of each service in the catalogue, and this driver uses the \
             region {} ({})",
            quoted(new),
            self.place()
        );
        let remedy = "Check that the existing volumes are in this region: the log of the other controller has the endpoint of Cinder";
        Some((message, remedy.to_owned()))
    }

    /// Compares a setting of one service by the values in effect. Without one, the service has the setting of all
    /// services, which is compared on its own.
    fn compare_service(&self, setting: Setting, old_cloud: &OldCloud, new: &NewValue) -> Option<Difference> {
        let own = old_cloud.values.get(&setting);
        if own.is_none() && !matches!(new, NewValue::Set(_)) {
            return None;
        }
        let common = setting.common();
        let old = own.or_else(|| old_cloud.values.get(&common?));
        let old = old.map_or_else(|| default_text(common.unwrap_or(setting)), |old| old.text.as_str());
        let new = match (new, common) {
            (NewValue::Unset, Some(common)) => self.value(common),
            (new, _) => new.clone(),
        };
        let new = new.or(default_text(common.unwrap_or(setting)))?;
        if old == new {
            return None;
        }
        let shown = |value: &str| match value {
            "" if setting.is_endpoint() => "the address in the catalogue".to_owned(),
            "" => "no value".to_owned(),
            value => quoted(value),
        };
        let key = match setting.yaml_key() {
            Some(key) if is_clouds_yaml(self.cloud) => format!("{key} of clouds.yaml"),
            _ => setting.conf_key(),
        };
        let message = format!(
            "the other installation uses {}, and this driver {} ({})",
            shown(old),
            shown(new),
            self.place()
        );
        let secret = self.field("credentialsSecretRef");
        let remedy = match own {
            Some(_) => format!("Write the key {key} into the Secret of {secret}"),
            None => {
                format!(
                    "Remove {key} from the Secret of {secret}, or check that it leads to the service of the existing volumes"
                )
            }
        };
        Some(of_key(own.map_or(key, |own| own.key.clone()), message, remedy))
    }

    /// Returns the message and remedy for two values, unless they are equal or one is unknown.
    fn compare_values(&self, setting: Setting, old: &str, new: &NewValue) -> Option<(String, String)> {
        let new = new.or(default_text(setting))?;
        if old == new {
            return None;
        }
        let shown = |value: &str| match value {
            "" => "no value".to_owned(),
            value if is_switch(setting) => value.to_owned(),
            value => quoted(value),
        };
        let limit = match setting.yaml_key() {
            None if is_clouds_yaml(self.cloud) => ", and a clouds.yaml cannot have the key",
            _ => "",
        };
        let message = format!(
            "the other installation uses {}, and this driver {} ({}){limit}",
            shown(old),
            shown(new),
            self.place()
        );
        Some((message, self.remedy(setting, old)))
    }

    /// Returns the field that determines a setting.
    fn remedy(&self, setting: Setting, old: &str) -> String {
        let value = UntrustedText::with_limit(old, 200);
        match setting {
            Setting::AuthUrl => format!(
                "Correct the address in the Secret of {}, or check that both lead to the same cloud",
                self.field("credentialsSecretRef")
            ),
            Setting::Region if old.is_empty() => format!("Set {}", self.field("region")),
            Setting::Region => format!("Set {} to {value}", self.field("region")),
            Setting::EndpointType => format!("Set {} to {value}", self.field("endpointType")),
            Setting::SkipsVerification if old == "true" => format!(
                "Name the certificates of the authorities in {}, or set {} to true",
                self.field("caBundleRef"),
                self.field("insecureSkipTLSVerify")
            ),
            Setting::SkipsVerification => format!(
                "Set {} to false, and take the key out of the Secret of {}",
                self.field("insecureSkipTLSVerify"),
                self.field("credentialsSecretRef")
            ),
            Setting::PublicRoots | Setting::HttpEndpoints => format!(
                "Write the key {} into the Secret of {}",
                if is_clouds_yaml(self.cloud) {
                    setting.yaml_key().unwrap_or_default().to_owned()
                } else {
                    setting.conf_key()
                },
                self.field("credentialsSecretRef")
            ),
            Setting::Rescan => format!("Set spec.blockStorage.rescanOnResize to {value}"),
            Setting::IgnoreZones => format!("Set spec.blockStorage.ignoreVolumeAZ to {value}"),
            Setting::IgnoreMicroversions => format!("Set spec.blockStorage.ignoreVolumeMicroversion to {value}"),
            Setting::SearchOrder => {
                format!("Add --search-order={value} to the node's container by spec.overrides (docs/overrides.md)")
            }
            Setting::Segments => format!("Set {}", self.field("nodeRegion")),
            Setting::ZoneMap => format!("Set {}", self.field("availabilityZoneMap")),
            _ => String::new(),
        }
    }

    /// Returns the message and remedy for a file that the pods of this driver lack.
    fn missing_file(&self, old: &OldValue, new: &NewValue, field: &str, remedy: &str) -> Option<(String, String)> {
        let message = format!("the other installation uses {}, and {NO_FILE}", quoted(&old.text));
        let remedy = format!("{remedy} {}", self.field(field));
        (*new == NewValue::Unset).then_some((message, remedy))
    }
}

fn attach_limit(old: &str, new: &NewValue) -> Option<(String, String)> {
    let shown = match new {
        NewValue::Set(new) if new == old => return None,
        NewValue::Set(new) => new.as_str(),
        _ => "what the bus of the node has room for (spec.blockStorage.nodeVolumeAttachLimit is not set)",
    };
    let message = format!("the other installation reports {old} volumes per node, and this driver {shown}");
    let remedy = format!("Set spec.blockStorage.nodeVolumeAttachLimit to {old}, or accept the count of the node");
    Some((message, remedy))
}

/// Describes the behavior of both drivers without a value.
fn default_text(setting: Setting) -> &'static str {
    match setting {
        Setting::EndpointType => ENDPOINT_TYPE,
        Setting::SearchOrder => SEARCH_ORDER,
        setting if is_switch(setting) => "false",
        _ => "",
    }
}
