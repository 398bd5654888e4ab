// SPDX-License-Identifier: Apache-2.0
//! Finds the object behind a path of a container: through mounts and volumes to the key of a Secret or ConfigMap.

use cinder_operator_core::migration::check::Variables;
use csi_sources::UntrustedText;
use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, ProjectedVolumeSource, Volume, VolumeMount};

use super::super::gaps::{BY_HAND, COMPARE, CORRECT};
use super::objects::{FileKind, KeyValue, Objects, Unread};

/// The symbolic link with which the kubelet replaces all files of a volume at once.
const DATA_LINK: &str = "..data";

/// A file of a volume: the key of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSource {
    pub(super) kind: FileKind,
    pub(super) name: String,
    pub(super) key: String,
    /// Whether the pod starts without the object or the key.
    pub(super) is_optional: bool,
    /// Whether the volume names the key. Otherwise the object may lack the key.
    pub(super) is_named: bool,
}

/// The content of a file, with its location.
#[derive(Debug)]
pub(super) struct FileContent {
    /// The object and the key.
    pub(super) place: String,
    pub(super) bytes: Vec<u8>,
}

/// Lists the objects that may contain the file. Objects that override others come first.
pub(super) fn find_file(
    pod: &PodSpec,
    container: &Container,
    variables: &Variables,
    path: &str,
) -> Result<Vec<FileSource>, Unread> {
    let parts = absolute(container, path)?;
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.filter_map(|mount| {
        let mounted = split(&mount.mount_path);
        let rest = parts.strip_prefix(mounted.as_slice())?;
        Some((mounted.len(), mount, rest.to_vec()))
    });
    // The kubelet mounts the longest path last, so that it hides the other mounts.
    let Some((_, mount, rest)) = mounts.max_by_key(|(length, ..)| *length) else {
        let why = "no volume is mounted there: it is a file of the image";
        return Err(Unread::new(why, COMPARE));
    };
    let mut inside = sub_path(mount, variables)?;
    inside.extend(rest);
    if inside.first().is_some_and(|part| part == DATA_LINK) {
        inside.remove(0);
    }
    let inside = inside.join("/");
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
    let Some(volume) = volume else {
        let name = UntrustedText::new(&mount.name).quoted();
        return Err(Unread::new(format!("the pod has no volume {name}"), CORRECT));
    };
    if inside.is_empty() {
        let why = format!("it is the directory of volume {}", UntrustedText::new(&volume.name));
        return Err(Unread::new(why, CORRECT));
    }
    sources(pod, volume, &inside)
}

/// Reads the file from the first object that contains it.
pub(super) async fn read_file(objects: &mut Objects<'_>, sources: &[FileSource]) -> Result<FileContent, Unread> {
    let mut missing = Vec::new();
    for source in sources {
        let place = objects.describe(source.kind, &source.name);
        let value = objects.value(source.kind, &source.name, &source.key).await;
        let value = value.map_err(|unread| Unread::new(format!("{place}: {}", unread.why), unread.remedy))?;
        let key = UntrustedText::with_limit(&source.key, 253);
        let (why, is_needed) = match value {
            KeyValue::Value(bytes) => {
                let place = format!("{place}, key {key}");
                return Ok(FileContent { place, bytes });
            }
            KeyValue::NoKey => (format!("{place} has no key {key}"), source.is_named),
            KeyValue::NoObject => (format!("{place} does not exist"), true),
        };
        // A pod does not start without the object, or without a key that its volume names.
        if is_needed && !source.is_optional {
            return Err(Unread::new(why, CORRECT));
        }
        missing.push(why);
    }
    Err(Unread::new(missing.join("; "), CORRECT))
}

/// Splits a path, and resolves `.`, `..` and empty parts.
fn split(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

fn absolute(container: &Container, path: &str) -> Result<Vec<String>, Unread> {
    if path.starts_with('/') {
        return Ok(split(path));
    }
    let directory = container.working_dir.as_deref();
    let Some(directory) = directory.filter(|path| path.starts_with('/')) else {
        let why = "the path is relative to the working directory of the image, which is unknown";
        return Err(Unread::new(why, COMPARE));
    };
    Ok(split(&format!("{directory}/{path}")))
}

/// The mounted directory or file of the volume.
fn sub_path(mount: &VolumeMount, variables: &Variables) -> Result<Vec<String>, Unread> {
    let text = match (&mount.sub_path, &mount.sub_path_expr) {
        (_, Some(expression)) => {
            let expanded = variables.expand(expression);
            let Some(text) = expanded.plain() else {
                let why = format!(
                    "its mount has the subPathExpr {}, whose variables are unknown here",
                    UntrustedText::new(expression).quoted()
                );
                return Err(Unread::new(why, COMPARE));
            };
            text.to_owned()
        }
        (Some(text), None) => text.clone(),
        (None, None) => String::new(),
    };
    Ok(split(&text))
}

/// The objects of a volume that may contain a file.
fn sources(pod: &PodSpec, volume: &Volume, inside: &str) -> Result<Vec<FileSource>, Unread> {
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.clone().unwrap_or_default();
        let (items, optional) = (secret.items.as_deref(), secret.optional);
        return one(source(FileKind::Secret, name, items, optional, inside), volume);
    }
    if let Some(map) = &volume.config_map {
        let (items, optional) = (map.items.as_deref(), map.optional);
        return one(
            source(FileKind::ConfigMap, map.name.clone(), items, optional, inside),
            volume,
        );
    }
    if let Some(projected) = &volume.projected {
        return of_projected(volume, projected, inside);
    }
    let name = UntrustedText::new(&volume.name);
    let why = if let Some(host) = &volume.host_path {
        format!("it is a file of the nodes, in {}", UntrustedText::new(&host.path))
    } else if volume.empty_dir.is_some() {
        let mut why = format!("it is in the emptyDir {name}: a container writes it when the pod runs");
        let writers = pod.init_containers.iter().flatten().filter(|container| {
            let mut mounts = container.volume_mounts.iter().flatten();
            mounts.any(|mount| mount.name == volume.name)
        });
        let writers: Vec<&str> = writers.map(|container| container.name.as_str()).take(5).collect();
        if !writers.is_empty() {
            why = format!("{why} (init container {})", UntrustedText::new(&writers.join(", ")));
        }
        why
    } else if let Some(csi) = &volume.csi {
        format!(
            "it is in a volume of the CSI driver {}",
            UntrustedText::new(&csi.driver)
        )
    } else if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        format!("it is in the PersistentVolume {name}")
    } else if volume.downward_api.is_some() {
        format!("it is a field of each pod, in volume {name}")
    } else {
        format!("volume {name} is of a kind that the check does not read")
    };
    Err(Unread::new(why, COMPARE))
}

fn one(source: Option<FileSource>, volume: &Volume) -> Result<Vec<FileSource>, Unread> {
    source.map(|source| vec![source]).ok_or_else(|| no_file(volume))
}

fn no_file(volume: &Volume) -> Unread {
    let name = UntrustedText::new(&volume.name);
    Unread::new(format!("volume {name} has no such file"), CORRECT)
}

/// The key of one object that contains a file; `None` if the object cannot contain it.
fn source(
    kind: FileKind,
    name: String,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    inside: &str,
) -> Option<FileSource> {
    let items = items.unwrap_or_default();
    let is_named = !items.is_empty();
    let key = if items.is_empty() {
        (!inside.contains('/')).then(|| inside.to_owned())?
    } else {
        // If several items have the same path, the last one counts.
        let mut items = items.iter().rev();
        items.find(|item| split(&item.path).join("/") == inside)?.key.clone()
    };
    Some(FileSource {
        kind,
        name,
        key,
        is_optional: optional.unwrap_or_default(),
        is_named,
    })
}

/// The objects of a projected volume. A later source overrides an earlier one.
fn of_projected(volume: &Volume, projected: &ProjectedVolumeSource, inside: &str) -> Result<Vec<FileSource>, Unread> {
    let mut files = Vec::new();
    for projection in projected.sources.iter().flatten().rev() {
        let other = |path: &str| split(path).join("/") == inside;
        if let Some(secret) = &projection.secret {
            let (items, optional) = (secret.items.as_deref(), secret.optional);
            files.extend(source(FileKind::Secret, secret.name.clone(), items, optional, inside));
        } else if let Some(map) = &projection.config_map {
            let (items, optional) = (map.items.as_deref(), map.optional);
            files.extend(source(FileKind::ConfigMap, map.name.clone(), items, optional, inside));
        } else if projection
            .service_account_token
            .as_ref()
            .is_some_and(|one| other(&one.path))
        {
            return Err(Unread::new("it is a token of the service account", BY_HAND));
        } else if projection
            .cluster_trust_bundle
            .as_ref()
            .is_some_and(|one| other(&one.path))
        {
            return Err(Unread::new("it is a ClusterTrustBundle", COMPARE));
        } else if let Some(api) = &projection.downward_api
            && api.items.iter().flatten().any(|item| other(&item.path))
        {
            return Err(Unread::new("it is a field of each pod", COMPARE));
        }
    }
    if files.is_empty() {
        return Err(no_file(volume));
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
