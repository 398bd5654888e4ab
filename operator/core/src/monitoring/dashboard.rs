// SPDX-License-Identifier: Apache-2.0
//! The dashboard of `dashboard.yaml`, as Grafana reads it.

use std::sync::LazyLock;

use cinder_csi_crds::{AlertThresholds, ConditionType};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{RUNBOOKS, Word, fill_in, leaders, runbook, thresholds};
use crate::templates::{self, Template};

static DASHBOARD: Template<Dashboard> = LazyLock::new(|| templates::read(include_str!("dashboard.yaml")));

/// How many columns Grafana has.
const COLUMNS: u8 = 24;
/// Width and height of a panel that does not say it.
const SIZE: (u8, u8) = (8, 8);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    annotations: Vec<Annotation>,
    rows: Vec<Row>,
}

/// What is drawn across all panels at its time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    title: String,
    color: String,
    text: String,
    labels: Vec<String>,
    expr: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: String,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    description: String,
    show: Show,
    #[serde(default = "size")]
    size: (u8, u8),
    unit: String,
    min: Option<f64>,
    step: Option<String>,
    #[serde(default)]
    thresholds: Vec<Threshold>,
    #[serde(default)]
    values: Vec<ValueText>,
    no_value: Option<String>,
    #[serde(default)]
    runbooks: Vec<String>,
    #[serde(default)]
    columns: Vec<Column>,
    queries: Vec<Query>,
}

fn size() -> (u8, u8) {
    SIZE
}

/// The kind of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Show {
    /// The value now, on its colour.
    Stat,
    /// Values over time.
    Lines,
    /// A band per series over time, in the colours of its values.
    States,
    /// The series now, a row for each.
    Table,
}

/// A colour, and from which value on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Threshold {
    from: Option<Bound>,
    color: String,
}

/// A number, or the name of a threshold of the alerts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bound {
    Number(f64),
    Name(String),
}

/// How a single value is shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueText {
    value: Value,
    text: String,
    color: String,
}

/// A column of a table: a label, or `Value` with the name of its query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    field: String,
    title: String,
    unit: Option<String>,
    #[serde(default)]
    thresholds: Vec<Threshold>,
    #[serde(default)]
    values: Vec<ValueText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    expr: String,
    #[serde(default)]
    legend: String,
}

/// The dashboard of every driver, in Grafana's JSON; the user chooses the driver in it.
pub fn dashboard() -> Result<String, serde_json::Error> {
    let template = templates::get(&DASHBOARD)?;
    let words = words();
    let annotations = template.annotations.iter().map(|annotation| annotation.json(&words));
    let annotations: Vec<Value> = std::iter::once(own_annotations()).chain(annotations).collect();
    let dashboard = json!({
        "uid": "cinder-csi",
        "title": "Cinder CSI",
        "tags": ["openstack", "cinder", "csi"],
        "schemaVersion": 39,
        "editable": true,
        // One time is shown in all panels.
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "annotations": {"list": annotations},
        "links": [link("Runbooks", RUNBOOKS)],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {
                "name": "driver", "label": "Driver", "type": "query", "datasource": source(), "refresh": 2,
                "query": "label_values(cinder_csi_operator_condition, driver)",
            },
        ]},
        "panels": panels(&template.rows, &words),
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&dashboard)?))
}

/// What is filled in. The longer words come first where one is part of another.
fn words() -> Vec<Word> {
    let with_good_status = |status: &str| {
        let good = ConditionType::ALL.iter().filter(|type_| type_.good_status() == status);
        good.map(|type_| type_.as_str()).collect::<Vec<_>>().join("|")
    };
    let driver = "driver=\"$driver\"";
    let pods = |component: &str| format!("{driver},job=~\".+-{component}-metrics\"");
    let zero = format!("or on () (0 * max(cinder_csi_operator_condition{{{driver}}}))");
    let mut words = vec![
        leaders(),
        ("OR_ZERO", zero),
        (
            "OF_OPERATORS",
            "and on (namespace, pod) cinder_csi_operator_leader".to_owned(),
        ),
        ("WITH_GOOD_STATUS_TRUE", with_good_status("True")),
        ("WITH_GOOD_STATUS_FALSE", with_good_status("False")),
        ("CONTROLLER", pods("controller")),
        ("NODES", pods("node")),
        ("DRIVER", driver.to_owned()),
    ];
    words.extend(thresholds(&AlertThresholds::default()));
    words
}

/// Rows, each with its panels from left to right.
fn panels(rows: &[Row], words: &[Word]) -> Vec<Value> {
    let mut all = Vec::new();
    let mut top = 0;
    for row in rows {
        let id = all.len() + 1;
        all.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }));
        top += 1;
        let (mut left, mut tallest) = (0, 0);
        for panel in &row.panels {
            let (width, height) = panel.size;
            if left + width > COLUMNS {
                top += u32::from(tallest);
                (left, tallest) = (0, 0);
            }
            let id = all.len() + 1;
            let place = json!({"x": left, "y": top, "w": width, "h": height});
            all.push(panel.json(id, &place, words));
            left += width;
            tallest = tallest.max(height);
        }
        top += u32::from(tallest);
    }
    all
}

/// Where all data come from: the variable.
fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn link(title: &str, url: &str) -> Value {
    json!({"title": title, "type": "link", "url": url, "targetBlank": true, "icon": "doc", "tags": [], "asDropdown": false})
}

/// What users of Grafana note on the dashboard.
fn own_annotations() -> Value {
    json!({
        "name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": true, "hide": true, "iconColor": "blue",
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    })
}

impl Annotation {
    fn json(&self, words: &[Word]) -> Value {
        json!({
            "name": self.title,
            "datasource": source(),
            "enable": true,
            "hide": false,
            "iconColor": self.color,
            "expr": fill_in(&self.expr, words),
            "step": "1m",
            "titleFormat": self.text,
            "tagKeys": self.labels.join(","),
        })
    }
}

impl Panel {
    fn json(&self, id: usize, place: &Value, words: &[Word]) -> Value {
        let mut panel = json!({
            "id": id,
            "type": self.show.kind(),
            "title": self.title,
            "description": self.description,
            "datasource": source(),
            "gridPos": place,
            "fieldConfig": {
                "defaults": self.defaults(words),
                "overrides": self.columns.iter().map(|column| column.overrides(words)).collect::<Vec<_>>(),
            },
            "options": self.show.options(),
            "links": self.runbooks.iter().map(|heading| runbook_link(heading)).collect::<Vec<_>>(),
            "targets": self.targets(words),
        });
        if let Some(step) = &self.step {
            panel["interval"] = json!(step);
        }
        if self.show == Show::Table {
            panel["transformations"] = self.transformations();
        }
        panel
    }

    fn defaults(&self, words: &[Word]) -> Value {
        let by_thresholds = self.show != Show::Lines;
        let mut defaults = json!({
            "unit": self.unit,
            "color": {"mode": if by_thresholds { "thresholds" } else { "palette-classic" }},
            "thresholds": steps(&self.thresholds, words),
            "mappings": mappings(&self.values),
            "custom": self.show.custom(!self.thresholds.is_empty()),
        });
        if let Some(min) = self.min {
            defaults["min"] = json!(min);
        }
        if let Some(text) = &self.no_value {
            defaults["noValue"] = json!(text);
        }
        defaults
    }

    fn targets(&self, words: &[Word]) -> Vec<Value> {
        // What is shown as it is now is asked for as it is now: an older value would hide that there is none.
        let is_instant = matches!(self.show, Show::Stat | Show::Table);
        let format = if self.show == Show::Table {
            "table"
        } else {
            "time_series"
        };
        let target = |(name, query): (char, &Query)| {
            json!({
                "refId": name,
                "datasource": source(),
                "editorMode": "code",
                "expr": fill_in(&query.expr, words),
                "legendFormat": query.legend,
                "format": format,
                "instant": is_instant,
                "range": !is_instant,
            })
        };
        ('A'..='Z').zip(&self.queries).map(target).collect()
    }

    /// One table with the columns in their order.
    fn transformations(&self) -> Value {
        let names: Vec<&str> = self.columns.iter().map(|column| column.field.as_str()).collect();
        let order: Map<String, Value> = names
            .iter()
            .zip(0..)
            .map(|(name, at)| ((*name).to_owned(), json!(at)))
            .collect();
        let titles = self
            .columns
            .iter()
            .map(|column| (column.field.clone(), json!(column.title)));
        let titles: Map<String, Value> = titles.collect();
        json!([
            {"id": "merge", "options": {}},
            {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
            {"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": titles}},
        ])
    }
}

fn runbook_link(heading: &str) -> Value {
    json!({"title": format!("Runbook: {heading}"), "url": runbook(heading), "targetBlank": true})
}

impl Column {
    fn overrides(&self, words: &[Word]) -> Value {
        let mut properties = Vec::new();
        let mut set = |name: &str, value: Value| properties.push(json!({"id": name, "value": value}));
        if let Some(unit) = &self.unit {
            set("unit", json!(unit));
        }
        if !self.thresholds.is_empty() {
            set("thresholds", steps(&self.thresholds, words));
        }
        if !self.values.is_empty() {
            set("mappings", mappings(&self.values));
        }
        if !self.thresholds.is_empty() || !self.values.is_empty() {
            set(
                "custom.cellOptions",
                json!({"type": "color-background", "mode": "basic"}),
            );
        }
        json!({"matcher": {"id": "byName", "options": self.title}, "properties": properties})
    }
}

impl Show {
    fn kind(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Lines => "timeseries",
            Self::States => "state-timeline",
            Self::Table => "table",
        }
    }

    /// What only this kind of panel has for its fields.
    fn custom(self, has_thresholds: bool) -> Value {
        match self {
            Self::Stat => json!({}),
            Self::Lines => json!({
                "drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto", "spanNulls": false,
                "thresholdsStyle": {"mode": if has_thresholds { "line" } else { "off" }},
            }),
            Self::States => json!({"fillOpacity": 80, "lineWidth": 0}),
            Self::Table => json!({"align": "auto", "cellOptions": {"type": "auto"}, "filterable": true}),
        }
    }

    fn options(self) -> Value {
        match self {
            Self::Stat => json!({
                "colorMode": "background", "graphMode": "none", "justifyMode": "center", "orientation": "auto", "textMode": "value",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            }),
            Self::Lines => json!({
                "legend": {"showLegend": true, "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Self::States => json!({
                "alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "never",
                "legend": {"showLegend": true, "displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "single", "sort": "none"},
            }),
            Self::Table => {
                json!({"showHeader": true, "cellHeight": "sm", "footer": {"show": false, "reducer": ["sum"], "fields": ""}})
            }
        }
    }
}

/// The colours of values. Without thresholds every value has one colour.
fn steps(thresholds: &[Threshold], words: &[Word]) -> Value {
    let step = |threshold: &Threshold| {
        let from = match &threshold.from {
            None => Value::Null,
            Some(Bound::Number(number)) => json!(number),
            // A name that is no threshold stays a text, which a test refuses.
            Some(Bound::Name(name)) => {
                let filled_in = fill_in(name, words);
                filled_in
                    .parse::<f64>()
                    .map_or(Value::String(filled_in), |number| json!(number))
            }
        };
        json!({"value": from, "color": threshold.color})
    };
    let steps: Vec<Value> = thresholds.iter().map(step).collect();
    let steps = if steps.is_empty() {
        vec![json!({"value": null, "color": "green"})]
    } else {
        steps
    };
    json!({"mode": "absolute", "steps": steps})
}

fn mappings(values: &[ValueText]) -> Value {
    if values.is_empty() {
        return json!([]);
    }
    let options = values.iter().zip(0..).map(|(one, at)| {
        let key = one.value.as_str().map_or_else(|| one.value.to_string(), str::to_owned);
        (key, json!({"text": one.text, "color": one.color, "index": at}))
    });
    json!([{"type": "value", "options": options.collect::<Map<_, _>>()}])
}

#[cfg(test)]
mod tests;
