// SPDX-License-Identifier: Apache-2.0
//! Secrets and ConfigMaps that pods refer to, each read once.

use std::{collections::BTreeMap, fmt};

use csi_sources::UntrustedText;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::Client;

use super::super::gaps::{BY_HAND, CORRECT, REPEAT, RIGHTS};
use crate::kubernetes::{GuardedApi, SecretData, SecretError, answer, get_secret, is_forbidden};

/// Maximum number of objects that one check reads.
const MOST_OBJECTS: usize = 64;
/// Maximum size of a value, in bytes.
const LONGEST_VALUE: usize = 256 << 10;

/// The kind of an object with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    ConfigMap,
    Secret,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// Why an object or a value is unknown.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

impl Unread {
    pub(super) fn new(why: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            why: why.into(),
            remedy,
        }
    }
}

/// The value of a key of an object.
#[derive(Debug)]
pub(super) enum KeyValue {
    Value(Vec<u8>),
    /// The object does not have the key.
    NoKey,
    NoObject,
}

enum FileObject {
    ConfigMap(BTreeMap<String, Vec<u8>>),
    Secret(SecretData),
}

/// The objects of one namespace.
pub(super) struct Objects<'a> {
    client: &'a Client,
    namespace: &'a str,
    read: BTreeMap<(FileKind, String), Result<Option<FileObject>, Unread>>,
}

impl<'a> Objects<'a> {
    pub(super) fn new(client: &'a Client, namespace: &'a str) -> Self {
        Self {
            client,
            namespace,
            read: BTreeMap::new(),
        }
    }

    /// Formats kind, namespace and name for messages.
    pub(super) fn describe(&self, kind: FileKind, name: &str) -> String {
        format!("{kind} {}/{}", self.namespace, UntrustedText::with_limit(name, 253))
    }

    /// The keys of an object; `None` if it does not exist.
    pub(super) async fn keys(&mut self, kind: FileKind, name: &str) -> Result<Option<Vec<String>>, Unread> {
        Ok(self.get(kind, name).await?.map(|object| match object {
            FileObject::ConfigMap(values) => values.keys().cloned().collect(),
            FileObject::Secret(data) => data.keys().map(str::to_owned).collect(),
        }))
    }

    /// The value of a key.
    pub(super) async fn value(&mut self, kind: FileKind, name: &str, key: &str) -> Result<KeyValue, Unread> {
        let Some(object) = self.get(kind, name).await? else {
            return Ok(KeyValue::NoObject);
        };
        let value = match object {
            FileObject::ConfigMap(values) => values.get(key).cloned(),
            FileObject::Secret(data) => data.get(key).map_err(|error| unread_secret(&error))?,
        };
        match value {
            Some(value) if value.len() > LONGEST_VALUE => {
                let why = format!(
                    "the value has {} bytes, and {LONGEST_VALUE} are the most that is read",
                    value.len()
                );
                Err(Unread::new(why, CORRECT))
            }
            Some(value) => Ok(KeyValue::Value(value)),
            None => Ok(KeyValue::NoKey),
        }
    }

    async fn get(&mut self, kind: FileKind, name: &str) -> Result<Option<&FileObject>, Unread> {
        let id = (kind, name.to_owned());
        if !self.read.contains_key(&id) {
            if self.read.len() >= MOST_OBJECTS {
                let why = format!("its pods refer to more than {MOST_OBJECTS} Secrets and ConfigMaps");
                return Err(Unread::new(why, BY_HAND));
            }
            let read = self.fetch(kind, name).await;
            self.read.insert(id.clone(), read);
        }
        match self.read.get(&id) {
            Some(Ok(object)) => Ok(object.as_ref()),
            Some(Err(unread)) => Err(unread.clone()),
            None => Ok(None),
        }
    }

    async fn fetch(&self, kind: FileKind, name: &str) -> Result<Option<FileObject>, Unread> {
        match kind {
            FileKind::Secret => {
                let data = get_secret(self.client, self.namespace, name).await;
                let data = data.map_err(|error| unread_secret(&error))?;
                Ok(data.map(FileObject::Secret))
            }
            FileKind::ConfigMap => {
                let maps: GuardedApi<ConfigMap> = GuardedApi::namespaced(self.client.clone(), self.namespace);
                let map = maps.get_opt(name).await.map_err(|error| unread_map(&error))?;
                Ok(map.map(|map| {
                    let texts = map.data.unwrap_or_default().into_iter();
                    let texts = texts.map(|(key, text)| (key, text.into_bytes()));
                    let binaries = map.binary_data.unwrap_or_default().into_iter();
                    let binaries = binaries.map(|(key, ByteString(bytes))| (key, bytes));
                    FileObject::ConfigMap(texts.chain(binaries).collect())
                }))
            }
        }
    }
}

fn unread_secret(error: &SecretError) -> Unread {
    let remedy = match error {
        SecretError::Refused(_) => RIGHTS,
        SecretError::NoAnswer => REPEAT,
        SecretError::Undecodable(_) => CORRECT,
    };
    Unread::new(error.to_string(), remedy)
}

/// A ConfigMap may contain credentials, so errors do not repeat its text.
fn unread_map(error: &kube::Error) -> Unread {
    match error {
        kube::Error::Api(_) => Unread::new(answer(error), if is_forbidden(error) { RIGHTS } else { REPEAT }),
        kube::Error::BuildRequest(_) => Unread::new(answer(error), CORRECT),
        kube::Error::SerdeError(_) => Unread::new("it cannot be decoded", CORRECT),
        _ => Unread::new("the API server did not answer", REPEAT),
    }
}
