// SPDX-License-Identifier: Apache-2.0
//! The commands of the pages with a newcomer's tasks, and the tests that run them.

use Proof::{Pages, Removal, Test, Untested};

/// The test of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The scenario of the cluster with all pages runs the command as written.
    Pages,
    /// The scenario of the cluster that removes the product runs the command as written.
    Removal,
    /// A test in this file, with this name, runs the command with its own values.
    Test(&'static str, &'static str),
    /// No test can run the command, for this reason.
    Untested(&'static str),
}

const CHART: &str = "tests/suites/tests/chart/server.rs";
const ORPHAN: Proof = Test("tests/suites/tests/cluster/orphan.rs", "orphan_runs_until_adoption");
const TAKEOVER: &str = "tests/suites/tests/takeover/main.rs";
const RELEASE: &str = "tests/suites/tests/release/main.rs";
const REGIONS: Proof = Test(
    "tests/suites/tests/cluster/regions.rs",
    "storage_classes_select_cloud_by_node_or_secret",
);
const SNAPSHOT_KINDS: Proof = Test(
    "tests/suites/src/cluster/snapshots.rs",
    "snapshots_work_after_kinds_are_installed",
);
const CHECK: Proof = Test(TAKEOVER, "check_reports_changes_before_installation");
const MIGRATE: Proof = Test(TAKEOVER, "operator_replaces_go_driver_under_writing_pods");
const ROLLBACK: Proof = Test(TAKEOVER, "rollback_restores_go_driver");
const PUBLISHED: Proof = Untested("needs a published release");

/// The beginning of each command, by the page.
pub(super) const COMMANDS: &[(&str, &[(&str, Proof)])] = &[
    (
        "install.md",
        &[
            (
                "helm install --namespace cinder-csi --create-namespace cinder-csi-operator oci://ghcr.io",
                Test(RELEASE, "helm_installs_driver_from_registry"),
            ),
            ("kubectl label namespace cinder-csi", Pages),
            (
                "kubectl apply -f https://github.com",
                Test(RELEASE, "kubectl_installs_driver_from_one_file"),
            ),
            ("cosign verify", PUBLISHED),
            ("gh attestation verify", PUBLISHED),
            ("image=ghcr.io", PUBLISHED),
            ("make release", Test(RELEASE, "checksums_match_all_files")),
            ("crane auth login", Untested("needs a registry with a login")),
            ("make publish", Test(RELEASE, "helm_installs_driver_from_registry")),
            (
                "helm install --namespace cinder-csi --create-namespace cinder-csi-operator oci://registry.example.org",
                Test(RELEASE, "helm_installs_driver_from_registry"),
            ),
            (
                "openstack application credential create",
                Untested("the services of the tests have no OpenStack client"),
            ),
            ("kubectl -n cinder-csi create secret", Pages),
            ("kubectl apply -f config/samples/cindercsidriver.yaml", Pages),
            ("kubectl wait", Pages),
            ("kubectl get cindercsidriver", Pages),
            ("kubectl describe cindercsidriver", Pages),
            ("kubectl delete -k config/admission", Removal),
            ("kubectl apply -k \"https://github.com", SNAPSHOT_KINDS),
            ("kubectl apply -k config/snapshot-controller", SNAPSHOT_KINDS),
        ],
    ),
    (
        "guide.md",
        &[
            ("kubectl apply", Pages),
            ("kubectl wait", Pages),
            ("kubectl exec", Pages),
        ],
    ),
    (
        "volumes/volume-snapshots.md",
        &[
            ("kubectl apply", Pages),
            ("kubectl wait", Pages),
            ("kubectl exec", Pages),
        ],
    ),
    (
        "volumes/volume-expansion.md",
        &[("kubectl apply", Pages), ("kubectl wait", Pages)],
    ),
    (
        "volumes/topology.md",
        &[
            ("kubectl -n cinder-csi create secret", REGIONS),
            ("kubectl label node", REGIONS),
            ("kubectl patch cindercsidriver", REGIONS),
        ],
    ),
    (
        "updates.md",
        &[
            (
                "kubectl apply -k config/default",
                Test(
                    "tests/suites/tests/upgrade/main.rs",
                    "update_loses_no_write_and_is_ordered",
                ),
            ),
            ("helm upgrade", Test(CHART, "upgrade_updates_crd_and_retains_objects")),
            ("helm install", Test(CHART, "chart_adopts_objects_installed_by_kubectl")),
            (
                "helm get values",
                Test(CHART, "rollback_restores_spec_of_later_revisions"),
            ),
            (
                "version=",
                Test(
                    "tests/suites/tests/operator/rollout.rs",
                    "update_needs_approval_and_downgrade_permission",
                ),
            ),
            (
                "kubectl patch cindercsidriver DRIVER --type=merge -p '{\"spec\": {\"update\"",
                Test(
                    "tests/suites/tests/operator/rollout.rs",
                    "update_needs_approval_and_downgrade_permission",
                ),
            ),
            (
                "kubectl annotate",
                Test(
                    "operator/src/controller/tests/narrowing.rs",
                    "confirmed_narrowing_is_applied",
                ),
            ),
            (
                "kubectl patch cindercsidriver DRIVER --type=merge -p '{\"spec\": {\"managementState\"",
                ORPHAN,
            ),
            ("kubectl wait cindercsidriver DRIVER --for=delete", ORPHAN),
            ("kubectl apply -f driver.yaml", ORPHAN),
        ],
    ),
    (
        "uninstall.md",
        &[
            ("kubectl delete cindercsidriver", Removal),
            ("kubectl delete -k", Removal),
            ("helm uninstall", Test(RELEASE, "helm_installs_driver_from_registry")),
            (
                "kubectl delete lease",
                Test(RELEASE, "helm_installs_driver_from_registry"),
            ),
            (
                "kubectl delete crd",
                Test(RELEASE, "helm_installs_driver_from_registry"),
            ),
        ],
    ),
    (
        super::MIGRATION,
        &[
            (
                "kubectl apply -k config/default",
                Test(TAKEOVER, "operator_does_nothing_next_to_go_driver"),
            ),
            ("kubectl apply -k config/rbac/adoption", MIGRATE),
            (
                "kubectl -n kube-system get secret",
                Test(TAKEOVER, "operator_does_nothing_next_to_go_driver"),
            ),
            (
                "kubectl apply -f driver.yaml",
                Test(TAKEOVER, "operator_does_nothing_next_to_go_driver"),
            ),
            ("kubectl cinder-csi adopt --check", CHECK),
            ("kubectl patch cindercsidriver cinder.csi.openstack.org", MIGRATE),
            ("kubectl get cindercsidriver", MIGRATE),
            ("kubectl annotate cindercsidriver cinder.csi.openstack.org", MIGRATE),
            ("kubectl create role", MIGRATE),
            (
                "kubectl set image",
                Test(TAKEOVER, "our_image_runs_in_go_driver_manifests"),
            ),
            ("helm upgrade", Test(TAKEOVER, "our_image_runs_in_go_driver_chart")),
            ("helm rollback", Test(TAKEOVER, "our_image_runs_in_go_driver_chart")),
            ("name=", ROLLBACK),
            ("kubectl patch cindercsidriver $name", ROLLBACK),
            ("kubectl annotate cindercsidriver $name", ROLLBACK),
            ("kubectl delete cindercsidriver $name", ROLLBACK),
            ("cd manifests", ROLLBACK),
            ("kubectl apply -f csi-cinder-driver.yaml", ROLLBACK),
        ],
    ),
];

/// Returns the test of a command, if the page is one of a newcomer's tasks.
pub fn proof(page: &str, command: &str) -> Option<Proof> {
    let (_, rows) = COMMANDS.iter().find(|(name, _)| *name == page)?;
    let (_, proof) = rows.iter().find(|(beginning, _)| command.starts_with(beginning))?;
    Some(*proof)
}
