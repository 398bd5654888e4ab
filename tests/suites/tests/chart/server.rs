// SPDX-License-Identifier: Apache-2.0
//! Tests of the chart on a real API server: the CustomResourceDefinition is updated with the chart, and outlives it.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{ApiServer, Command, previous_source, wait_for};
use serde_json::{Value, json};
use suites::api::{Api, Object};
use suites::chart;
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
            ensure!(self.api.find(pod).await?.is_none(), "{pod} still exists");
        }
        Ok(())
    }

    /// Waits for a pod, which Helm creates after the API server serves the kind, and reports its success.
    async fn finish_pod(&self, pod: &str) -> Result<()> {
        wait_for("the pod of the hook", PATIENCE, async || {
            self.api.get(pod).await?;
            let kinds = self
                .server
                .kubectl()
                .args(["api-resources", "--api-group=csi.openstack.org"]);
            let known = kinds.output().await?;
            ensure!(known.contains("cindercsidrivers"), "{known}");
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
            self.api.get(&path_of(&object)).await
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
            let schema = self.schema().await?;
            ensure!(schema == present.as_str(), "schema {schema}, and not {present}");
            Ok(())
        })
        .await
    }

    /// Checks that the object is unchanged and can be updated.
    async fn check_object(&self, old: &Value) -> Result<()> {
        let path = path_of(old);
        let now = self.api.get(&path).await?;
        ensure!(
            now["metadata"]["uid"] == old["metadata"]["uid"] && now["metadata"]["deletionTimestamp"].is_null(),
            "{now}"
        );
        let secret = &now["spec"]["clouds"][0]["credentialsSecretRef"]["name"];
        ensure!(secret == "openstack-credentials", "{now}");
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

fn path_of(object: &Value) -> String {
    format!("{OBJECTS}/{}", object["metadata"]["name"].as_str().unwrap_or_default())
}

/// Returns the schema hash of the chart's CustomResourceDefinition.
fn present_schema() -> Result<String> {
    let file = chart::directory().join("files/cindercsidrivers.csi.openstack.org.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let hash = text
        .split_once("schema-hash: ")
        .and_then(|(_, rest)| rest.lines().next());
    Ok(hash.context("the definition has no hash")?.trim_matches('"').to_owned())
}

/// Returns a chart with the CustomResourceDefinition of an earlier commit.
async fn old_chart(lab: &Lab) -> Result<std::path::PathBuf> {
    let copy = lab.path("old-chart");
    let script = "cp -rL \"$1\" \"$0\"; cp -f \"$2\"/crds/cindercsidrivers.csi.openstack.org.yaml \"$0\"/files/; \
                  sed -i 's/schema-hash: .*/schema-hash: old/' \"$0\"/files/cindercsidrivers.csi.openstack.org.yaml; \
                  sed -i 's/^\\(version\\|appVersion\\):.*/\\1: 0.0.1/' \"$0\"/Chart.yaml";
    let copying = Command::new("bash").args(["-euc", script]).arg(&copy);
    copying
        .arg(chart::directory())
        .arg(previous_source().await?)
        .output()
        .await?;
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
        ensure!(
            schema != present_schema()?.as_str(),
            "the old chart brings schema {schema}"
        );

        it.helm("upgrade", Some(&chart), &[]).await?;
        it.knows_the_present_version().await?;
        it.check_object(&old).await?;
        let now = it.api.get(&path_of(&old)).await?;
        ensure!(now["spec"] == old["spec"], "{} became {}", old["spec"], now["spec"]);

        let before = it.versions().await?;
        it.helm("upgrade", Some(&chart), &[]).await?;
        let after = it.versions().await?;
        ensure!(after == before, "the second upgrade made {after:?} of {before:?}");

        it.helm("uninstall", None, &[]).await?;
        ensure!(
            it.api.find(OPERATOR).await?.is_none(),
            "the operator was not uninstalled"
        );
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
        it.server
            .kubectl()
            .args(["apply", "-k"])
            .arg(manifests)
            .output()
            .await?;
        let old = it.apply_old_object().await?;

        let refused = it.helm("install", Some(&chart::directory()), &[]).await;
        let message = format!("{:#}", refused.err().context("helm took over what it was not told to")?);
        ensure!(message.contains("invalid ownership metadata"), "{message}");
        let options = ["--take-ownership", "--force-conflicts"];
        it.helm("install", Some(&chart::directory()), &options).await?;

        it.knows_the_present_version().await?;
        it.check_object(&old).await?;
        let replicas = it.api.get(OPERATOR).await?["spec"]["replicas"].take();
        ensure!(replicas == 2, "the operator has {replicas} replicas");
        let policy = it.api.get(CRD).await?["metadata"]["annotations"]["helm.sh/resource-policy"].take();
        ensure!(policy == "keep", "{policy}");
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
        ensure!(message.contains("set crds.enabled"), "{message}");
        ensure!(it.api.find(OPERATOR).await?.is_none(), "half of it is installed");

        it.helm_on_a_node("install", &[&create[..], &["--create-namespace"]].concat())
            .await?;
        let first = it.api.get(DRIVER).await?;
        let conditions = first["status"]["conditions"].as_array().context("no conditions")?;
        ensure!(
            conditions.len() == 3 && conditions.iter().all(|condition| condition["status"] == "Unknown"),
            "{conditions:?}"
        );
        let remains = async |policy: &str| {
            let now = it.api.get(DRIVER).await?;
            let metadata = &now["metadata"];
            ensure!(
                metadata["uid"] == first["metadata"]["uid"] && metadata["deletionTimestamp"].is_null(),
                "{now}"
            );
            ensure!(metadata["annotations"]["helm.sh/resource-policy"] == "keep", "{now}");
            ensure!(now["spec"]["update"]["policy"] == policy, "{now}");
            ensure!(
                now["spec"]["clouds"][0]["credentialsSecretRef"]["name"] == "openstack-credentials",
                "{now}"
            );
            Ok(now["metadata"]["resourceVersion"].clone())
        };
        remains("Manual").await?;

        let changed = ["--set=driver.create=true", "--set=driver.spec.update.policy=Automatic"];
        it.helm("upgrade", Some(&chart), &changed).await?;
        let version = remains("Automatic").await?;
        it.helm("upgrade", Some(&chart), &changed).await?;
        ensure!(
            remains("Automatic").await? == version,
            "the same upgrade wrote the driver"
        );

        it.helm("upgrade", Some(&chart), &[]).await?;
        remains("Automatic").await?;
        it.helm("upgrade", Some(&chart), &changed).await?;
        it.helm("uninstall", None, &[]).await?;
        ensure!(
            it.api.find(OPERATOR).await?.is_none(),
            "the operator was not uninstalled"
        );
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
        let options = |policy| {
            [
                "--set=driver.create=true".to_owned(),
                format!("--set=driver.spec.update.policy={policy}"),
            ]
        };
        let has = async |policy: &str| {
            let spec = it.api.get(DRIVER).await?["spec"].take();
            ensure!(spec["update"]["policy"] == policy, "{spec}");
            Ok(())
        };
        let install = [&options("Manual")[..], &["--create-namespace".to_owned()]].concat();
        let install: Vec<&str> = install.iter().map(String::as_str).collect();
        it.helm_on_a_node("install", &install).await?;
        let uid = it.api.get(DRIVER).await?["metadata"]["uid"].take();
        for policy in ["Automatic", "Manual"] {
            let options = options(policy);
            it.helm("upgrade", Some(&chart), &[&options[0], &options[1]]).await?;
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
        let now = it.api.get(DRIVER).await?;
        ensure!(now["metadata"]["uid"] == uid, "{now}");
        Ok(())
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
            ensure!(rendered.contains("cinder-csi-operator-wait"), "{rendered}");
            ensure!(rendered.contains("cinder-csi-operator-ready") == has_hook, "{rendered}");
        }
        Ok(())
    });
}
