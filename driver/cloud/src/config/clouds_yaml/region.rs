// SPDX-License-Identifier: Apache-2.0
//! The region of a cloud, and its values in `regions`.

use super::super::ConfigError;
use super::super::document::{YamlMap, YamlNode};
use super::CloudEntry;

/// The region in use.
pub(super) struct ChosenRegion<'a> {
    pub(super) name: Option<String>,
    /// The values that override the keys of the cloud.
    pub(super) values: Option<&'a YamlMap>,
}

/// An entry of `regions`.
struct RegionEntry<'a> {
    name: Option<&'a str>,
    values: Option<&'a YamlMap>,
}

impl<'a> CloudEntry<'a> {
    /// The desired region, else the first one of `regions`, else the first one of `region_name`.
    pub(super) fn choose_region(&self, desired: Option<&str>) -> Result<ChosenRegion<'a>, ConfigError> {
        let entries = self.region_entries()?;
        let Some(desired) = desired else {
            let first = entries.into_iter().next();
            return Ok(ChosenRegion {
                name: first.as_ref().and_then(|entry| entry.name).map(str::to_owned),
                values: first.and_then(|entry| entry.values),
            });
        };
        let has_values = entries
            .iter()
            .any(|entry| entry.values.is_some_and(|values| values.iter().next().is_some()));
        let entry = entries.into_iter().find(|entry| entry.name == Some(desired));
        if entry.is_none() && has_values {
            return Err(self.unsupported(
                &format!("regions without the region {desired:?} that is in use"),
                "add the region, or correct the one that is in use",
            ));
        }
        Ok(ChosenRegion {
            name: Some(desired.to_owned()),
            values: entry.and_then(|entry| entry.values),
        })
    }

    fn region_entries(&self) -> Result<Vec<RegionEntry<'a>>, ConfigError> {
        if let Some(node) = self.map.get("regions").filter(|node| !node.is_null()) {
            let YamlNode::List(items) = node else {
                return Err(self.bad("regions", "must be a list"));
            };
            if items.is_empty() {
                return Err(self.bad("regions", "is empty; remove it, or name a region"));
            }
            let mut entries = Vec::with_capacity(items.len());
            for (number, item) in items.iter().enumerate() {
                entries.push(self.region_entry(&format!("regions[{number}]"), item)?);
            }
            return Ok(entries);
        }
        let spelled = self.map.get("region-name").or(self.map.get("region_name"));
        let Some(node) = spelled else { return Ok(Vec::new()) };
        if let YamlNode::List(items) = node {
            let names = items.iter().map(|item| self.text("region_name", item));
            let names: Result<Vec<_>, _> = names.collect();
            return Ok(names?
                .into_iter()
                .map(|name| RegionEntry { name, values: None })
                .collect());
        }
        let text = self.text("region_name", node)?;
        let first = text
            .and_then(|text| text.split(',').next())
            .filter(|name| !name.is_empty());
        Ok(vec![RegionEntry {
            name: first,
            values: None,
        }])
    }

    fn region_entry(&self, key: &str, item: &'a YamlNode) -> Result<RegionEntry<'a>, ConfigError> {
        let Some(map) = item.as_map() else {
            return Ok(RegionEntry {
                name: self.text(key, item)?,
                values: None,
            });
        };
        if let Some((other, _)) = map.iter().find(|(name, _)| !matches!(*name, "name" | "values")) {
            return Err(self.bad(
                &format!("{key}.{other}"),
                "is not possible there; a region has name and values",
            ));
        }
        let name = map
            .get("name")
            .ok_or_else(|| self.bad(key, "has no name; a region has name and values"))?;
        let values = map.get("values").filter(|values| !values.is_null());
        let values = values.map(|values| {
            let map = values.as_map();
            map.ok_or_else(|| self.bad(&format!("{key}.values"), "must be a mapping"))
        });
        Ok(RegionEntry {
            name: self.text(&format!("{key}.name"), name)?,
            values: values.transpose()?,
        })
    }
}
