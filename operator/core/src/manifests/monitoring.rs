// SPDX-License-Identifier: Apache-2.0
//! Objects for Prometheus and Grafana: Services with the metrics ports, ServiceMonitors, alerts and a dashboard.

use std::collections::BTreeMap;

use cinder_csi_crds::{INSTANCE_LABEL, Monitoring};
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodTemplateSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

use super::metadata::{self, ComponentLabel};
use super::operand::{Operand, RenderError, Stage};
use super::pod;
use crate::cluster::kinds;
use crate::monitoring;
use crate::resolve::Resolved;

/// The API of the Prometheus operator.
const API: &str = "monitoring.coreos.com/v1";
/// Label by which Grafana's sidecar finds dashboards, unless the spec sets other labels.
const DASHBOARD_LABEL: (&str, &str) = ("grafana_dashboard", "1");
/// Label of a Service with the component that its metrics describe.
const METRICS_OF: &str = "csi.openstack.org/metrics-of";

/// Returns the objects for the controller and node pods. Empty if the spec disables them or the cluster lacks the
/// kinds.
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
            .map_err(|source| RenderError::new("PrometheusRule", source))?
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

/// Returns a headless Service for the metrics of every pod of a component.
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
            // The metrics of a pod that is not ready help to find the cause.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn metrics_of(component: ComponentLabel) -> BTreeMap<String, String> {
    BTreeMap::from([(METRICS_OF.to_owned(), component.as_str().to_owned())])
}

/// Every port of our containers except the probe port serves metrics. The names are those of the container ports.
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

/// Scrapes every port of a Service. It adds the name of the driver to every series, because some metrics of the
/// sidecars lack it.
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
                    // The Prometheus operator's label for the Service would rename our label, the service of a cloud.
                    // `job` has the same value.
                    {"action": "labeldrop", "regex": "service"},
                ],
            });
            if resolved.secure_metrics && port.name.as_deref() == Some(pod::DRIVER_PORT) {
                endpoint["scheme"] = json!("https");
                // No authority signs the certificate that a pod generates for itself.
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
        // The operator finds the objects by its own labels, which take precedence.
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
