// SPDX-License-Identifier: Apache-2.0
//! Fields of pods that overrides must not change while image registries are restricted.
//!
//! `--allowed-registries` determines the programs that run on the nodes as root. An allowed image with another
//! command, environment or volume is another program. All fields that are not listed here are guarded, including
//! fields of later versions of Kubernetes.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields of a pod that affect only its placement and its lifetime.
const POD_FIELDS: [&str; 16] = [
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullSecrets",
    "nodeSelector",
    "preemptionPolicy",
    "priorityClassName",
    "readinessGates",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
];

/// Fields of a container that do not change its program. The image has a separate check.
const CONTAINER_FIELDS: [&str; 5] = [
    "name",
    "image",
    "imagePullPolicy",
    "resources",
    "terminationMessagePolicy",
];

/// Fields of a container that may change unless they run a command.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Returns the path of a guarded field that differs between two versions of a workload.
pub(super) fn changed_field(before: &Value, after: &Value) -> Option<String> {
    const POD: &str = "/spec/template/spec";
    let [before, after] = [before, after].map(|object| object.pointer(POD).map(guarded_fields).unwrap_or_default());
    let paths = before.keys().chain(after.keys());
    let mut changed = paths.filter(|path| before.get(*path) != after.get(*path));
    changed.next().map(|path| format!("spec.template.spec.{path}"))
}

/// Returns the guarded fields of a pod by their paths.
fn guarded_fields(pod: &Value) -> BTreeMap<String, &Value> {
    let mut guarded = BTreeMap::new();
    for (name, value) in pod.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("containers" | "initContainers", Value::Array(containers)) => {
                for container in containers {
                    guard_container(name, container, &mut guarded);
                }
            }
            (name, _) if POD_FIELDS.contains(&name) => {}
            (name, value) => drop(guarded.insert(name.to_owned(), value)),
        }
    }
    guarded
}

fn guard_container<'a>(list: &str, container: &'a Value, guarded: &mut BTreeMap<String, &'a Value>) {
    let own = container["name"].as_str().unwrap_or_default();
    for (field, value) in container.as_object().into_iter().flatten() {
        let path = format!("{list}[{own}].{field}");
        if PROBES.contains(&field.as_str()) {
            let command = value.get("exec").map(|command| (format!("{path}.exec"), command));
            guarded.extend(command);
        } else if !CONTAINER_FIELDS.contains(&field.as_str()) {
            guarded.insert(path, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn mk_workload() -> Value {
        json!({"spec": {"template": {"spec": {
            "hostNetwork": true,
            "containers": [{"name": "driver", "image": "i", "args": ["--a"], "readinessProbe": {"httpGet": {"port": 1}}}],
            "volumes": [{"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet"}}],
        }}}})
    }

    fn changed(pod: &Value) -> Option<String> {
        let mut after = mk_workload();
        json_patch::merge(&mut after["spec"]["template"]["spec"], pod);
        changed_field(&mk_workload(), &after)
    }

    fn changed_container(fields: &Value) -> Option<String> {
        let mut after = mk_workload();
        json_patch::merge(&mut after["spec"]["template"]["spec"]["containers"][0], fields);
        changed_field(&mk_workload(), &after)
    }

    #[rstest]
    #[case::volumes(json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}), "volumes")]
    #[case::image_volume(json!({"volumes": [{"name": "files", "image": {"reference": "ghcr.io/x"}}]}), "volumes")]
    #[case::host_network(json!({"hostNetwork": null}), "hostNetwork")]
    #[case::host_pid(json!({"hostPID": true}), "hostPID")]
    #[case::host_ipc(json!({"hostIPC": true}), "hostIPC")]
    #[case::host_users(json!({"hostUsers": false}), "hostUsers")]
    #[case::host_aliases(json!({"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["keystone"]}]}), "hostAliases")]
    #[case::processes(json!({"shareProcessNamespace": true}), "shareProcessNamespace")]
    #[case::security(json!({"securityContext": {"runAsUser": 0}}), "securityContext")]
    #[case::ephemeral(json!({"ephemeralContainers": [{"name": "x", "image": "i"}]}), "ephemeralContainers")]
    #[case::account(json!({"serviceAccount": "other"}), "serviceAccount")]
    #[case::token(json!({"automountServiceAccountToken": true}), "automountServiceAccountToken")]
    #[case::node(json!({"nodeName": "n1"}), "nodeName")]
    #[case::devices(json!({"resourceClaims": [{"name": "gpu"}]}), "resourceClaims")]
    #[case::init_container(json!({"initContainers": [{"name": "x", "image": "i", "command": ["sh"]}]}), "initContainers[x].command")]
    #[case::field_of_a_later_version(json!({"runAsRootOnNode": true}), "runAsRootOnNode")]
    fn field_of_pod_is_guarded(#[case] pod: Value, #[case] path: &str) {
        assert_eq!(changed(&pod), Some(format!("spec.template.spec.{path}")));
    }

    #[rstest]
    #[case::command(json!({"command": ["sh", "-c", "x"]}), "command")]
    #[case::args(json!({"args": ["--a", "--b"]}), "args")]
    #[case::env(json!({"env": [{"name": "LD_PRELOAD", "value": "/x"}]}), "env")]
    #[case::env_from(json!({"envFrom": [{"secretRef": {"name": "s"}}]}), "envFrom")]
    #[case::mounts(json!({"volumeMounts": [{"name": "kubelet", "mountPath": "/bin"}]}), "volumeMounts")]
    #[case::devices(json!({"volumeDevices": [{"name": "x", "devicePath": "/dev/x"}]}), "volumeDevices")]
    #[case::security(json!({"securityContext": {"privileged": true}}), "securityContext")]
    #[case::hooks(json!({"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}), "lifecycle")]
    #[case::directory(json!({"workingDir": "/x"}), "workingDir")]
    #[case::file_of_the_kubelet(json!({"terminationMessagePath": "/bin/mount"}), "terminationMessagePath")]
    #[case::ports(json!({"ports": [{"containerPort": 1, "hostPort": 1}]}), "ports")]
    #[case::liveness(json!({"livenessProbe": {"exec": {"command": ["sh"]}}}), "livenessProbe.exec")]
    #[case::readiness(json!({"readinessProbe": {"exec": {"command": ["sh"]}}}), "readinessProbe.exec")]
    #[case::startup(json!({"startupProbe": {"exec": {"command": ["sh"]}}}), "startupProbe.exec")]
    #[case::field_of_a_later_version(json!({"script": "x"}), "script")]
    fn field_of_container_is_guarded(#[case] fields: Value, #[case] path: &str) {
        assert_eq!(
            changed_container(&fields),
            Some(format!("spec.template.spec.containers[driver].{path}"))
        );
    }

    #[rstest]
    #[case::nothing(json!({}))]
    #[case::grace(json!({"terminationGracePeriodSeconds": 60}))]
    #[case::runtime(json!({"runtimeClassName": "gvisor"}))]
    #[case::selector(json!({"nodeSelector": {"a": "b"}}))]
    #[case::tolerations(json!({"tolerations": [{"operator": "Exists"}]}))]
    #[case::pull_secrets(json!({"imagePullSecrets": [{"name": "s"}]}))]
    fn placement_of_pod_may_change(#[case] pod: Value) {
        assert_eq!(changed(&pod), None);
    }

    #[rstest]
    #[case::image(json!({"image": "other"}))]
    #[case::resources(json!({"resources": {"limits": {"memory": "64Mi"}}}))]
    #[case::probe(json!({"readinessProbe": {"periodSeconds": 5}}))]
    fn size_of_container_may_change(#[case] fields: Value) {
        assert_eq!(changed_container(&fields), None);
    }
}
