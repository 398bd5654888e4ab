//! The alerts: symptoms that somebody can do something about, each with a runbook.

use cinder_csi_crds::AlertThresholds;
use serde_json::{Value, json};

/// Where the runbooks are read: a section for each alert.
const RUNBOOKS: &str = "https://github.com/cinder-csi/cinder-csi/blob/main/docs/runbooks.md";

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// At once: volumes cannot be used.
    Critical,
    /// Today: it will get worse, or a part of the cluster is affected.
    Warning,
    /// When there is time.
    Info,
}

impl Severity {
    /// As in the alert's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// How soon somebody should look.
    pub severity: Severity,
    /// How long the expression must hold, as Prometheus writes it.
    pub holds: &'static str,
    /// When it fires, in PromQL.
    pub expression: String,
    /// One line.
    pub summary: &'static str,
    /// What it means and what to do first, with the values of the labels filled in.
    pub description: &'static str,
}

impl Alert {
    fn rule(&self) -> Value {
        json!({
            "alert": self.name,
            "expr": self.expression,
            "for": self.holds,
            "labels": {"severity": self.severity.as_str()},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": format!("{RUNBOOKS}#{}", self.name.to_lowercase()),
            },
        })
    }
}

/// The groups of a PrometheusRule or of a file of rules.
pub fn groups(name: &str, alerts: &[Alert]) -> Value {
    json!([{"name": name, "rules": alerts.iter().map(Alert::rule).collect::<Vec<_>>()}])
}

/// Alerts about the operator itself: once in a cluster.
pub fn operator_alerts() -> Vec<Alert> {
    vec![
        alert(
            "CinderCSIOperatorDown",
            Severity::Critical,
            "10m",
            "absent(cinder_csi_operator_leader == 1)",
            "No replica of the Cinder CSI operator works.",
            "No process reports that it leads. Drivers that run go on, but nothing repairs, upgrades or explains them. Look at \
             the pods of the operator and at their logs.",
        ),
        alert(
            "CinderCSIReconcileFailing",
            Severity::Warning,
            "15m",
            // A pause between failures grows to minutes: one object that always fails makes few of them.
            "max by (driver) (cinder_csi_operator_reconcile_failures) > 0 or on () \
             (sum(increase(cinder_csi_operator_reconcile_total{result=\"error\"}[15m])) > 5 and \
             sum(rate(cinder_csi_operator_reconcile_total{result=\"error\"}[15m])) / \
             sum(rate(cinder_csi_operator_reconcile_total[15m])) > 0.5)",
            "Reconciles of the Cinder CSI operator fail.",
            "Each one of the CinderCSIDriver {{ $labels.driver }} failed, or, where none is named, most of all did. Condition Degraded of \
             the CinderCSIDriver and the operator's log say why.",
        ),
    ]
}

/// Alerts about one driver.
pub fn driver_alerts(driver: &str, thresholds: &AlertThresholds) -> Vec<Alert> {
    let mut alerts = state(driver);
    alerts.extend(clouds(driver, thresholds));
    alerts.extend(volumes(driver, thresholds));
    alerts
}

/// What the operator says about the driver as a whole.
fn state(driver: &str) -> Vec<Alert> {
    let own = |text: &str| with_driver(driver, text);
    vec![
        alert(
            "CinderCSIUnavailable",
            Severity::Critical,
            "5m",
            own("LEADERS(cinder_csi_operator_condition{DRIVER,type=\"Available\",status=\"False\"}) == 1"),
            "The Cinder CSI driver {{ $labels.driver }} is not available.",
            "Volumes cannot be made, attached or mounted in all of the cluster. `kubectl describe cindercsidriver {{ $labels.driver }}`: \
             condition Available says why.",
        ),
        alert(
            "CinderCSIDegraded",
            Severity::Warning,
            "15m",
            own("LEADERS(cinder_csi_operator_condition{DRIVER,type=\"Degraded\",status=\"True\"}) == 1"),
            "The Cinder CSI driver {{ $labels.driver }} needs help.",
            "`kubectl describe cindercsidriver {{ $labels.driver }}`: condition Degraded says what is wrong and what to do.",
        ),
        alert(
            "CinderCSINodePluginNotRegistered",
            Severity::Warning,
            "15m",
            own(&format!("{UNREGISTERED} > 0")),
            "Nodes do not know the Cinder CSI driver {{ $labels.driver }}.",
            "{{ $value }} nodes that should run the driver have no CSINode entry of it: pods there cannot use volumes. \
             status.nodes of the CinderCSIDriver names some.",
        ),
        alert(
            "CinderCSINodePluginsNotRegistered",
            Severity::Critical,
            "15m",
            own(&format!(
                "({UNREGISTERED}) / on (driver) LEADERS(cinder_csi_operator_nodes{{DRIVER,state=\"desired\"}}) > 0.1"
            )),
            "More than a tenth of the nodes do not know the Cinder CSI driver {{ $labels.driver }}.",
            "{{ $value | humanizePercentage }} of the nodes have no CSINode entry of the driver: pods there cannot use volumes.",
        ),
        alert(
            "CinderCSIRolloutStalled",
            Severity::Warning,
            "1h",
            own("max by (driver, component) (cinder_csi_operator_rollout_state{DRIVER,state!~\"Idle|Complete\"}) == 1"),
            "A rollout of the Cinder CSI driver {{ $labels.driver }} does not end.",
            "The {{ $labels.component }} has been on its way to another version for an hour. status.rollout of the CinderCSIDriver says \
             what it waits for.",
        ),
        alert(
            "CinderCSIDriftRepeated",
            Severity::Warning,
            "0m",
            own("sum by (driver, kind) (increase(cinder_csi_operator_drift_repaired_total{DRIVER}[1h])) > 5"),
            "Somebody keeps changing an object of the Cinder CSI driver {{ $labels.driver }}.",
            "An object of kind {{ $labels.kind }} was put right {{ $value | humanize }} times in an hour. The events DriftRepaired \
             of the CinderCSIDriver name it and the fields; managedFields of the object name who writes.",
        ),
        alert(
            "CinderCSIDeletionBlocked",
            Severity::Info,
            "24h",
            own("sum by (driver) (cinder_csi_operator_deletion_blockers{DRIVER}) > 0"),
            "The removal of the Cinder CSI driver {{ $labels.driver }} waits.",
            "{{ $value }} objects of the driver are in the way: status.deletion of the CinderCSIDriver names them.",
        ),
    ]
}

const UNREGISTERED: &str = "LEADERS(cinder_csi_operator_nodes{DRIVER,state=\"desired\"}) - on (driver) \
                            LEADERS(cinder_csi_operator_nodes{DRIVER,state=\"registered\"})";

const EXPIRY: &str = "min by (driver, cloud, kind) (cinder_csi_operator_credential_expiry_timestamp_seconds{DRIVER,kind!=\"token\"}) \
                      - time()";

/// Credentials, services, quota, zones.
fn clouds(driver: &str, thresholds: &AlertThresholds) -> Vec<Alert> {
    let own = |text: &str| with_driver(driver, text);
    vec![
        alert(
            "CinderCSICredentialsInvalid",
            Severity::Critical,
            "5m",
            own("LEADERS(cinder_csi_operator_credential_valid{DRIVER}) == 0"),
            "The credentials of cloud {{ $labels.cloud }} do not log in.",
            "The driver {{ $labels.driver }} goes on with the last good ones as long as Keystone takes them. Condition \
             CredentialsValid of the CinderCSIDriver says why, and which Secret to mend.",
        ),
        alert(
            "CinderCSICredentialsExpiring",
            Severity::Warning,
            "1h",
            own(&format!("{EXPIRY} < 14 * 86400")),
            "Something that the cloud {{ $labels.cloud }} is reached with expires within two weeks.",
            "The {{ $labels.kind }} expires in {{ $value | humanizeDuration }}. Put a new one into the Secret that spec.clouds of the \
             CinderCSIDriver {{ $labels.driver }} names: the driver takes it over while it runs.",
        ),
        alert(
            "CinderCSICredentialsExpire",
            Severity::Critical,
            "10m",
            own(&format!("{EXPIRY} < 3 * 86400")),
            "Something that the cloud {{ $labels.cloud }} is reached with expires within three days.",
            "The {{ $labels.kind }} expires in {{ $value | humanizeDuration }}; after that volumes can neither be made nor attached. Put \
             a new one into the Secret that spec.clouds of the CinderCSIDriver {{ $labels.driver }} names.",
        ),
        alert(
            "CinderCSIBackendDown",
            Severity::Critical,
            "5m",
            own("LEADERS(cinder_csi_operator_backend_up{DRIVER}) == 0"),
            "The service {{ $labels.service }} of cloud {{ $labels.cloud }} does not answer.",
            "Condition BackendReachable of the CinderCSIDriver {{ $labels.driver }} says what was tried and what happened.",
        ),
        alert(
            "CinderCSIBackendSlow",
            Severity::Warning,
            "15m",
            own(&format!(
                "histogram_quantile(0.99, sum by (driver, request, le) \
                 (rate(openstack_api_request_duration_seconds_bucket{{DRIVER}}[15m]))) > {}",
                thresholds.backend_seconds
            )),
            "OpenStack answers slowly.",
            "One of a hundred {{ $labels.request }} of the driver {{ $labels.driver }} takes longer than \
             {{ $value | humanizeDuration }}. Volumes are made and attached as slowly.",
        ),
        alert(
            "CinderCSIBackendErrors",
            Severity::Warning,
            "15m",
            own(&format!(
                "sum by (driver, cloud, service) (rate(openstack_api_answers_total{{DRIVER,code=~\"0|429|5..\"}}[15m])) / \
                 sum by (driver, cloud, service) (rate(openstack_api_answers_total{{DRIVER}}[15m])) > {}",
                f64::from(thresholds.backend_error_percent) / 100.0
            )),
            "The service {{ $labels.service }} of cloud {{ $labels.cloud }} fails.",
            "{{ $value | humanizePercentage }} of the driver's calls got no answer, 429 or an error of the service. The driver's \
             log has the request ids.",
        ),
        alert(
            "CinderCSIQuotaNearLimit",
            Severity::Warning,
            "15m",
            own(&format!("{QUOTA} > 0.8 < 1")),
            "The quota of {{ $labels.resource }} in cloud {{ $labels.cloud }} is nearly used up.",
            "{{ $value | humanizePercentage }} of it are used. Ask for more, or delete what nobody needs.",
        ),
        alert(
            "CinderCSIQuotaExhausted",
            Severity::Critical,
            "15m",
            own(&format!("{QUOTA} >= 1")),
            "The quota of {{ $labels.resource }} in cloud {{ $labels.cloud }} is used up.",
            "New claims are refused with RESOURCE_EXHAUSTED. Ask for more, or delete what nobody needs.",
        ),
        alert(
            "CinderCSITopologyMismatch",
            Severity::Warning,
            "15m",
            own("LEADERS(cinder_csi_operator_topology_mismatched_zones{DRIVER}) > 0"),
            "Nova and Cinder of cloud {{ $labels.cloud }} do not have the same zones.",
            "{{ $value }} zones exist on one side alone ({{ $labels.side }}): volumes for pods there cannot be made. Condition \
             TopologyConsistent of the CinderCSIDriver {{ $labels.driver }} names them; spec.clouds[].availabilityZoneMap or \
             spec.blockStorage.ignoreVolumeAZ are the remedies.",
        ),
    ]
}

const QUOTA: &str =
    "LEADERS(cinder_csi_operator_quota_used{DRIVER}) / (LEADERS(cinder_csi_operator_quota_limit{DRIVER}) > 0)";

const STUCK: &str = "sum by (driver, operation) (cinder_csi_operator_stuck_volumes{DRIVER})";

/// Volumes that do not get where they should.
fn volumes(driver: &str, thresholds: &AlertThresholds) -> Vec<Alert> {
    let own = |text: &str| with_driver(driver, text);
    vec![
        alert(
            "CinderCSIVolumeStuck",
            Severity::Warning,
            "15m",
            own(&format!("{STUCK} > 0")),
            "Volumes make no progress: {{ $labels.operation }}.",
            "{{ $value }} volumes of the driver {{ $labels.driver }} are stuck. status.volumes.stuck of the CinderCSIDriver names them \
             with the reason and a hint; `kubectl cinder-csi diagnose CLAIM` tells of one.",
        ),
        alert(
            "CinderCSIVolumesStuck",
            Severity::Critical,
            "15m",
            own(&format!("{STUCK} > {}", thresholds.stuck_volumes)),
            "Many volumes make no progress: {{ $labels.operation }}.",
            "{{ $value }} volumes of the driver {{ $labels.driver }} are stuck. status.volumes.stuck of the CinderCSIDriver names some \
             with the reason and a hint.",
        ),
        alert(
            "CinderCSIProvisionFailing",
            Severity::Warning,
            "15m",
            own(
                "sum by (driver, class) (increase(controller_persistentvolumeclaim_provision_failed_total{DRIVER}[15m])) > 0 \
                 unless sum by (driver, class) (increase(controller_persistentvolumeclaim_provision_total{DRIVER}[15m])) > 0",
            ),
            "No volume of the class {{ $labels.class }} can be made.",
            "All tries of a quarter of an hour failed. The events of the claims say why.",
        ),
        alert(
            "CinderCSIAttachSlow",
            Severity::Warning,
            "15m",
            own(&format!(
                "histogram_quantile(0.99, sum by (driver, le) (rate(csi_sidecar_operations_seconds_bucket{{DRIVER,\
                 method_name=\"/csi.v1.Controller/ControllerPublishVolume\",grpc_status_code=\"OK\"}}[15m]))) > {}",
                thresholds.attach_seconds
            )),
            "Volumes are attached slowly.",
            "One of a hundred attachments takes longer than {{ $value | humanizeDuration }}, and pods wait as long. Nova and Cinder \
             decide about that; `openstack_api_request_duration_seconds` tells which calls are slow.",
        ),
        alert(
            "CinderCSIControllerNoLeader",
            Severity::Critical,
            "5m",
            own("sum by (driver, name) (leader_election_master_status{DRIVER}) == 0"),
            "No pod works as {{ $labels.name }} of the Cinder CSI driver {{ $labels.driver }}.",
            "None of the sidecars that share this Lease leads: what it does for volumes is not done. Look at the logs of the \
             controller's pods and at the Lease in the operator's namespace.",
        ),
    ]
}

/// Fills in which driver is meant, and whose word counts. The operator's metrics carry the label `driver`; those of the driver's
/// pods get it from the ServiceMonitor. Of the operator's replicas the leader alone tells about drivers. While another one takes
/// over, Prometheus knows the series of both: they must neither clash nor end an alert for a moment.
fn with_driver(driver: &str, text: &str) -> String {
    // A driver's name holds letters, digits, dots and dashes: nothing that PromQL would read otherwise.
    text.replace("DRIVER", &format!("driver=\"{driver}\""))
        .replace("LEADERS(", "max without (instance, pod) (")
}

fn alert(
    name: &'static str,
    severity: Severity,
    holds: &'static str,
    expression: impl Into<String>,
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert {
        name,
        severity,
        holds,
        expression: expression.into(),
        summary,
        description,
    }
}
