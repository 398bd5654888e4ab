// SPDX-License-Identifier: Apache-2.0
//! What Prometheus and Grafana find: Services with the metrics' ports, ServiceMonitors, alerts, a dashboard.

use std::collections::BTreeMap;

use cinder_csi_crds::{INSTANCE_LABEL, Monitoring};
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodTemplateSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

use super::metadata::{self, ComponentLabel};
use super::{Operand, RenderError, Stage, pod};
use crate::cluster::kinds;
use crate::monitoring;
use crate::resolve::Resolved;

/// The API of the Prometheus operator.
const API: &str = "monitoring.coreos.com/v1";
/// The label by which Grafana's sidecar finds dashboards, unless the spec names others.
const DASHBOARD_LABEL: (&str, &str) = ("grafana_dashboard", "1");
/// On a Service: whose metrics it leads to.
const METRICS_OF: &str = "csi.openstack.org/metrics-of";

/// Everything for the pods of controller and nodes; nothing where it is not wanted or the cluster does not know the kinds.
pub(super) fn operands(
    resolved: &Resolved,
    controller: &PodTemplateSpec,
    node: &PodTemplateSpec,
) -> Result<Vec<Operand>, RenderError> {
    let Some(settings) = &resolved.monitoring else {
        return Ok(Vec::new());
    };
    let mut operands = Vec::new();
    for (component, pod) in [(ComponentLabel::Controller, controller), (ComponentLabel::Node, node)] {
        let service = service(resolved, component, pod);
        operands.push(Operand::new(Stage::Monitoring, &service)?);
        let monitor = service_monitor(resolved, component, &service, settings);
        operands.push(untyped("ServiceMonitor", &monitor.0, &monitor.1)?);
    }
    if settings.rules.enabled {
        let mut metadata = named(resolved, "alerts");
        add_labels(&mut metadata, &settings.rules.labels);
        let alerts: Vec<_> = monitoring::driver_alerts(&resolved.driver_name, &settings.rules.thresholds)
            .map_err(|source| RenderError {
                kind: "PrometheusRule",
                source,
            })?
            .into_iter()
            .filter(|alert| !settings.rules.disabled.contains(&alert.name))
            .collect();
        let spec = json!({"groups": monitoring::groups(&resolved.driver_name, &alerts)});
        operands.push(untyped("PrometheusRule", &metadata, &spec)?);
    }
    if settings.dashboards.enabled {
        operands.push(Operand::new(Stage::Monitoring, &dashboard(resolved))?);
    }
    Ok(operands)
}

fn named(resolved: &Resolved, part: &str) -> ObjectMeta {
    metadata::namespaced(
        resolved,
        format!("{}-{part}", resolved.name_prefix),
        ComponentLabel::Monitoring,
    )
}

/// A Service without an address of its own, for the metrics of every pod of a component.
fn service(resolved: &Resolved, component: ComponentLabel, pod: &PodTemplateSpec) -> Service {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(ports).collect();
    let mut metadata = named(resolved, &format!("{}-metrics", component.as_str()));
    add_labels(&mut metadata, &metrics_of(component));
    Service {
        metadata,
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: metadata::selector(resolved, component).match_labels,
            ports: Some(ports),
            // The metrics of a pod that is not ready tell why.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn metrics_of(component: ComponentLabel) -> BTreeMap<String, String> {
    BTreeMap::from([(METRICS_OF.to_owned(), component.as_str().to_owned())])
}

/// Every port of our containers but that for probes serves metrics; the names are those of the containers' ports.
fn ports(container: &Container) -> Vec<ServicePort> {
    let port = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        let name = port.name.clone().filter(|name| name != pod::HEALTH_PORT)?;
        Some(ServicePort {
            target_port: Some(IntOrString::String(name.clone())),
            name: Some(name),
            port: port.container_port,
            protocol: Some("TCP".into()),
            ..ServicePort::default()
        })
    };
    container.ports.iter().flatten().filter_map(port).collect()
}

/// Reads every port of a Service, and notes on every series which driver it is of: the sidecars' metrics do not all say it.
fn service_monitor(
    resolved: &Resolved,
    component: ComponentLabel,
    service: &Service,
    settings: &Monitoring,
) -> (ObjectMeta, Value) {
    let mut metadata = named(resolved, component.as_str());
    add_labels(&mut metadata, &settings.service_monitor.labels);
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let endpoints: Vec<Value> = ports
        .map(|port| {
            let mut endpoint = json!({
                "port": port.name,
                "path": "/metrics",
                "interval": settings.service_monitor.interval,
                "relabelings": [
                    {"action": "replace", "targetLabel": "driver", "replacement": resolved.driver_name},
                    // The Prometheus operator's label of the Service would rename ours, the service of a cloud. `job` has the same value.
                    {"action": "labeldrop", "regex": "service"},
                ],
            });
            if resolved.secure_metrics && port.name.as_deref() == Some(pod::DRIVER_PORT) {
                endpoint["scheme"] = json!("https");
                // Nobody vouches for a certificate that a pod makes for itself.
                endpoint["tlsConfig"] = json!({"insecureSkipVerify": true});
            }
            endpoint
        })
        .collect();
    let spec = json!({
        "selector": {"matchLabels": {
            INSTANCE_LABEL: resolved.driver_name,
            METRICS_OF: component.as_str(),
        }},
        "namespaceSelector": {"matchNames": [resolved.namespace]},
        "endpoints": endpoints,
    });
    (metadata, spec)
}

fn dashboard(resolved: &Resolved) -> ConfigMap {
    let mut metadata = named(resolved, "dashboard");
    add_labels(
        &mut metadata,
        &BTreeMap::from([(DASHBOARD_LABEL.0.to_owned(), DASHBOARD_LABEL.1.to_owned())]),
    );
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([(
            "cinder-csi.json".to_owned(),
            monitoring::DASHBOARD.to_owned(),
        )])),
        ..ConfigMap::default()
    }
}

fn add_labels(metadata: &mut ObjectMeta, labels: &BTreeMap<String, String>) {
    let own = metadata.labels.get_or_insert_default();
    for (name, value) in labels {
        // Ours are those by which the objects are found again.
        own.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

fn untyped(kind: &'static str, metadata: &ObjectMeta, spec: &Value) -> Result<Operand, RenderError> {
    let object = DynamicObject {
        types: Some(TypeMeta {
            api_version: API.into(),
            kind: kind.into(),
        }),
        metadata: metadata.clone(),
        data: json!({"spec": spec}),
    };
    let kind = kinds::of(API, kind).ok_or_else(|| RenderError::unlisted(kind))?;
    Ok(Operand::of_kind(Stage::Monitoring, kind, object))
}
