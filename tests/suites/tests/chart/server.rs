// SPDX-License-Identifier: Apache-2.0
//! Tests of the chart on a real API server: the CustomResourceDefinition is updated with the chart, and outlives it.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{ApiServer, Command, previous_source, wait_for};
use serde_json::{Value, json};
use suites::api::{Api, Object, path_of};
use suites::chart;
use suites::expect::{expect_equal, expect_field, expect_parts};
use suites::lab::{Lab, in_lab};
use suites::programs;

pub(super) const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cindercsidrivers.csi.openstack.org";
pub(super) const OBJECTS: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers";
pub(super) const DRIVER: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers/cinder.csi.openstack.org";
/// Pods of the hooks, in Helm's order of creation.
const PODS: [&str; 2] = [
    "/api/v1/namespaces/cinder-csi/pods/cinder-csi-operator-wait",
    "/api/v1/namespaces/cinder-csi/pods/cinder-csi-operator-ready",
];
const OPERATOR: &str = "/apis/apps/v1/namespaces/cinder-csi/deployments/cinder-csi-operator";
/// JSON pointer of the annotation that protects an object from `helm uninstall`.
const POLICY: &str = "/metadata/annotations/helm.sh~1resource-policy";
/// Label of the chart's objects.
const LABEL: &str = "app.kubernetes.io/part-of=cinder-csi";
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// An API server and helm.
pub(super) struct Installation {
    lab: Rc<Lab>,
    pub(super) server: ApiServer,
    pub(super) api: Api,
}

impl Installation {
    pub(super) async fn start(lab: Rc<Lab>) -> Result<Self> {
        let directory = lab.path("api-server");
        std::fs::create_dir(&directory).context("cannot make a directory")?;
        let server = ApiServer::start(&directory, &[]).await?;
        let api = Api::new(&server)?;
        Ok(Self { lab, server, api })
    }

    /// Runs helm for the chart's release, as documented.
    pub(super) async fn helm(&self, command: &str, chart: Option<&Path>, further: &[&str]) -> Result<String> {
        let release = [command, "--namespace", "cinder-csi", "cinder-csi-operator"];
        let helm = self.prepare_helm()?.args(release).args(chart).args(further);
        helm.output().await
    }

    fn prepare_helm(&self) -> Result<Command> {
        let helm = Command::new(programs::helm()?).env("KUBECONFIG", self.server.kubeconfig());
        let variables = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        let set = |helm: Command, variable| helm.env(variable, self.lab.path(variable));
        Ok(variables.into_iter().fold(helm, set))
    }

    /// Runs helm and reports the success of its pods, as a kubelet does.
    async fn helm_on_a_node(&self, command: &str, options: &[&str]) -> Result<()> {
        let chart = chart::directory();
        let pods = async {
            for pod in PODS {
                self.finish_pod(pod).await?;
            }
            Ok(())
        };
        let (helm, pods) = tokio::join!(self.helm(command, Some(&chart), options), pods);
        pods.and(helm.map(drop))?;
        for pod in PODS {
            self.api.expect_missing(pod).await?;
        }
        Ok(())
    }

    /// Waits for a pod, which Helm creates after the API server serves the kind, and reports its success.
    async fn finish_pod(&self, pod: &str) -> Result<()> {
        wait_for("the pod of the hook", PATIENCE, async || {
            self.api.get(pod).await?;
            let words = ["api-resources", "--api-group=csi.openstack.org"];
            let kinds = self.server.kubectl().args(words).output().await?;
            expect_parts(&kinds, &["cindercsidrivers"])?;
            let status = json!({"status": {"phase": "Succeeded"}});
            self.api.merge(&format!("{pod}/status"), &status).await.map(drop)
        })
        .await
    }

    /// Applies an object of an earlier commit's API, and returns it.
    async fn apply_old_object(&self) -> Result<Value> {
        let object = object("old.csi.example.org", &json!({"update": {"maxUnavailable": 3}}));
        wait_for("the old kind", PATIENCE, async || {
            self.server.apply(&object.to_string()).await?;
            self.api.get(&path_of(&object)?).await
        })
        .await
    }

    /// Returns the schema hash of the installed CustomResourceDefinition.
    async fn schema(&self) -> Result<Value> {
        Ok(self.api.get(CRD).await?["metadata"]["annotations"]["csi.openstack.org/schema-hash"].take())
    }

    async fn knows_the_present_version(&self) -> Result<()> {
        let present = present_schema()?;
        wait_for("the present kind", PATIENCE, async || {
            expect_equal("schema", &self.schema().await?, present.as_str())
        })
        .await
    }

    /// Checks that the object is unchanged and can be updated.
    async fn check_object(&self, old: &Value) -> Result<()> {
        let path = path_of(old)?;
        expect_same(&self.api.get(&path).await?, old)?;
        let note = json!({"metadata": {"annotations": {"example.org/note": "still here"}}});
        self.api.merge(&path, &note).await.map(drop)
    }

    /// Returns the chart's objects with their resource versions.
    async fn versions(&self) -> Result<Vec<(String, Value)>> {
        let mut objects = self.api.labelled(LABEL).await?;
        // The driver object is not part of the chart.
        objects.retain(|object| !object.path.starts_with(OBJECTS));
        ensure!(objects.len() > 5, "the chart has made {}", objects.len());
        let version = |object: &Object| (object.label(), object.value["metadata"]["resourceVersion"].clone());
        Ok(objects.iter().map(version).collect())
    }
}

pub(super) fn object(name: &str, node: &Value) -> Value {
    json!({
        "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": name},
        "spec": {"clouds": [{"credentialsSecretRef": {"name": "openstack-credentials"}}], "node": node},
    })
}

/// Checks that an object is the same one as before, with its Secret, and is not being deleted.
fn expect_same(now: &Value, before: &Value) -> Result<()> {
    expect_field(now, "/metadata/uid", before["metadata"]["uid"].clone())?;
    expect_field(now, "/metadata/deletionTimestamp", Value::Null)?;
    let secret = "/spec/clouds/0/credentialsSecretRef/name";
    expect_field(now, secret, "openstack-credentials")
}

/// Returns the schema hash of the chart's CustomResourceDefinition.
fn present_schema() -> Result<String> {
    let file = chart::directory().join("files/cindercsidrivers.csi.openstack.org.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let hash = text.split_once("schema-hash: ");
    let hash = hash.and_then(|(_, rest)| rest.lines().next());
    Ok(hash.context("the definition has no hash")?.trim_matches('"').to_owned())
}

/// Returns a chart with the CustomResourceDefinition of an earlier commit.
async fn old_chart(lab: &Lab) -> Result<std::path::PathBuf> {
    let copy = lab.path("old-chart");
    let script = "cp -rL \"$1\" \"$0\"; cp -f \"$2\"/crds/cindercsidrivers.csi.openstack.org.yaml \"$0\"/files/; \
                  sed -i 's/schema-hash: .*/schema-hash: old/' \"$0\"/files/cindercsidrivers.csi.openstack.org.yaml; \
                  sed -i 's/^\\(version\\|appVersion\\):.*/\\1: 0.0.1/' \"$0\"/Chart.yaml";
    let copying = Command::new("bash").args(["-euc", script]).arg(&copy);
    let copying = copying.arg(chart::directory()).arg(previous_source().await?);
    copying.output().await?;
    Ok(copy)
}

#[test]
fn upgrade_updates_crd_and_retains_objects() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        let (old_chart, chart) = (old_chart(&it.lab).await?, chart::directory());
        it.helm("install", Some(&old_chart), &["--create-namespace"]).await?;
        let old = it.apply_old_object().await?;
        let schema = it.schema().await?;
        let is_old = schema != present_schema()?.as_str();
        ensure!(is_old, "the old chart brings schema {schema}");

        it.helm("upgrade", Some(&chart), &[]).await?;
        it.knows_the_present_version().await?;
        it.check_object(&old).await?;
        let now = it.api.get(&path_of(&old)?).await?;
        expect_equal("spec", &now["spec"], &old["spec"])?;

        let before = it.versions().await?;
        it.helm("upgrade", Some(&chart), &[]).await?;
        expect_equal("objects", &it.versions().await?, &before)?;

        it.helm("uninstall", None, &[]).await?;
        it.api.expect_missing(OPERATOR).await?;
        it.check_object(&old).await?;
        it.helm("install", Some(&chart), &[]).await?;
        it.check_object(&old).await
    });
}

#[test]
fn chart_adopts_objects_installed_by_kubectl() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        let manifests = previous_source().await?.join("config/default");
        let apply = it.server.kubectl().args(["apply", "-k"]).arg(manifests);
        apply.output().await?;
        let old = it.apply_old_object().await?;

        let refused = it.helm("install", Some(&chart::directory()), &[]).await;
        let message = format!("{:#}", refused.err().context("helm took over what it was not told to")?);
        expect_parts(&message, &["invalid ownership metadata"])?;
        let options = ["--take-ownership", "--force-conflicts"];
        it.helm("install", Some(&chart::directory()), &options).await?;

        it.knows_the_present_version().await?;
        it.check_object(&old).await?;
        expect_field(&it.api.get(OPERATOR).await?, "/spec/replicas", 2)?;
        expect_field(&it.api.get(CRD).await?, POLICY, "keep")?;
        it.helm("uninstall", None, &[]).await?;
        it.check_object(&old).await
    });
}

/// Helm looks up the kind of each object before it creates any, but this release also creates the kind.
#[test]
fn driver_outlives_its_release() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        let chart = chart::directory();
        let create = ["--set=driver.create=true", "--set=driver.spec.update.policy=Manual"];

        let without = [&create[..], &["--set=crds.enabled=false", "--create-namespace"]].concat();
        let refused = it.helm("install", Some(&chart), &without).await;
        let message = format!("{:#}", refused.err().context("there is no kind, and helm took it")?);
        expect_parts(&message, &["set crds.enabled"])?;
        it.api.expect_missing(OPERATOR).await?;

        let options = [&create[..], &["--create-namespace"]].concat();
        it.helm_on_a_node("install", &options).await?;
        let first = it.api.get(DRIVER).await?;
        let conditions = first["status"]["conditions"].as_array().context("no conditions")?;
        let are_unknown = conditions.iter().all(|condition| condition["status"] == "Unknown");
        ensure!(conditions.len() == 3 && are_unknown, "{conditions:?}");
        let remains = async |policy: &str| -> Result<Value> {
            let mut now = it.api.get(DRIVER).await?;
            expect_same(&now, &first)?;
            expect_field(&now, POLICY, "keep")?;
            expect_field(&now, "/spec/update/policy", policy)?;
            Ok(now["metadata"]["resourceVersion"].take())
        };
        remains("Manual").await?;

        let changed = ["--set=driver.create=true", "--set=driver.spec.update.policy=Automatic"];
        it.helm("upgrade", Some(&chart), &changed).await?;
        let version = remains("Automatic").await?;
        it.helm("upgrade", Some(&chart), &changed).await?;
        // The same upgrade does not write the driver.
        expect_equal("version", &remains("Automatic").await?, &version)?;

        it.helm("upgrade", Some(&chart), &[]).await?;
        remains("Automatic").await?;
        it.helm("upgrade", Some(&chart), &changed).await?;
        it.helm("uninstall", None, &[]).await?;
        it.api.expect_missing(OPERATOR).await?;
        remains("Automatic").await?;
        it.helm("install", Some(&chart), &create).await?;
        remains("Manual").await.map(drop)
    });
}

#[test]
fn rollback_restores_spec_of_later_revisions() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        let chart = chart::directory();
        let option = |policy| format!("--set=driver.create=true,driver.spec.update.policy={policy}");
        let has = async |policy: &str| {
            let driver = it.api.get(DRIVER).await?;
            expect_field(&driver, "/spec/update/policy", policy)
        };
        let manual = option("Manual");
        let install = [manual.as_str(), "--create-namespace"];
        it.helm_on_a_node("install", &install).await?;
        let uid = it.api.get(DRIVER).await?["metadata"]["uid"].take();
        for policy in ["Automatic", "Manual"] {
            it.helm("upgrade", Some(&chart), &[&option(policy)]).await?;
            has(policy).await?;
        }

        it.helm("rollback", None, &["2"]).await?;
        has("Automatic").await?;
        it.helm("rollback", None, &["1"]).await?;
        has("Automatic").await?;

        let release = ["--namespace", "cinder-csi", "cinder-csi-operator"];
        let revision = ["--revision", "1", "--output", "yaml"];
        let get = it.prepare_helm()?.args(["get", "values"]).args(release).args(revision);
        let values = it.lab.path("values.yaml");
        std::fs::write(&values, get.output().await?).context("cannot write the values")?;
        let values = values.to_str().context("a path that is not UTF-8")?;
        it.helm("upgrade", Some(&chart), &["--values", values]).await?;
        has("Manual").await?;
        expect_field(&it.api.get(DRIVER).await?, "/metadata/uid", uid)
    });
}

#[test]
pub(crate) fn driver_wait_decides_about_a_hook() {
    in_lab(async |lab| {
        let it = Installation::start(lab).await?;
        for (wait, has_hook) in [("true", true), ("false", false)] {
            let wait = format!("--set=driver.create=true,driver.wait={wait}");
            let options = ["--create-namespace", "--dry-run=server", wait.as_str()];
            let rendered = it.helm("install", Some(&chart::directory()), &options).await?;
            expect_parts(&rendered, &["cinder-csi-operator-wait"])?;
            ensure!(rendered.contains("cinder-csi-operator-ready") == has_hook, "{rendered}");
        }
        Ok(())
    });
}
