//! Situations in which whole reconciles lead to what the reference says: what credentials, writes and removals come to.

use cinder_cloud::{CloudOptions, config::Proxies};
use cinder_csi_crds::{
    AdoptionMode, CaBundleKind, CaBundleRef, ClientCertRef, DeletionPolicy, INSTANCE_LABEL, ImmutableChange,
    StorageClassItem, UpdateWindow,
};
use openstack_sim::{Sim, SimConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    observe::{ClaimObject, Fact, NodeObject, PodObject},
    operands::{COMPONENT_LABEL, CONTROLLER_COMPONENT, DRIVER_PORT_NAME, NODE_COMPONENT},
    reference::reached::Reached,
    resolve::health::HealthSettings,
    rollout::REVISION_LABEL,
    teardown::{UNREGISTERING_SINCE, UPDATES_STOPPED_SINCE},
};

const TAINT: &str = "example.org/not-ready";

fn put<K: Fact + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
    index.put(&serde_json::from_value::<K>(object).expect("an object"));
}

/// The node of every situation, which the driver's DaemonSet has a pod for.
fn node(ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": TAINT, "effect": "PreferNoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

impl World {
    /// A driver with something changed, in a cluster with something changed.
    fn with(spec: impl FnOnce(&mut CinderCSIDriverSpec), index: impl FnOnce(&mut Index)) -> Self {
        let (mut wanted, mut known) = (mk_spec(), mk_index(&[], true));
        spec(&mut wanted);
        put::<NodeObject>(&mut known, node(true));
        index(&mut known);
        Self::new(wanted, known)
    }

    /// Reconciles, whatever comes of it, and notes what was told.
    async fn tell(&self, reached: &mut Reached) {
        let driver = Arc::new(DeserializeGuard(Ok(self.driver())));
        // What fails is told in the status.
        if let Err(error) = self.reconcile().await {
            error_policy(driver, &error, Arc::clone(&self.context));
        }
        if let Some(driver) = self.api.get(DRIVER) {
            let driver: CinderCSIDriver = serde_json::from_value(driver).expect("a driver");
            driver.status.iter().for_each(|status| reached.status(status));
        }
        reached.sent(self.api.kinds_of_events());
        reached.metrics(&self.context.metrics);
    }

    fn patch_spec(&self, field: &str, value: Value) {
        let mut spec = self.api.get(DRIVER).expect("the driver")["spec"].clone();
        spec[field] = value;
        self.api.change(DRIVER, "/spec", spec);
    }
}

async fn credentials(reached: &mut Reached) {
    let used = || World::new(mk_spec(), mk_index(&["pv1"], true));
    let world = used();
    world.tell(reached).await;
    world.set_password("elsewhere");
    world.tell(reached).await;

    let world = World::managed();
    world.tell(reached).await;
    world.set_password("better");
    world.patch_spec("managementState", json!("Paused"));
    world.tell(reached).await;

    let world = used();
    let clouds = |names: &[&str]| {
        let named = names.iter().map(|name| {
            let mut cloud = serde_json::to_value(&mk_spec().clouds[0]).expect("JSON");
            cloud["name"] = json!(name);
            cloud
        });
        json!(named.collect::<Vec<_>>())
    };
    world.patch_spec("clouds", clouds(&["one", "two"]));
    world.set_password("elsewhere");
    world.tell(reached).await;
    // Both lead to one place, so that only what is recorded tells them apart.
    let secret = world.api.get(OWN_SECRET).expect("the driver's Secret");
    let places = json!({"one": {"project": "p"}, "two": {"project": "q"}}).to_string();
    let mut data = secret["data"].clone();
    data["places"] = json!(k8s_openapi::ByteString(places.into_bytes()));
    world.api.change(OWN_SECRET, "/data", data);
    world.patch_spec("clouds", clouds(&["one"]));
    world.tell(reached).await;

    for password in ["wrong", "forbidden", "unreachable", "broken", "misled"] {
        let world = World::managed();
        world.set_password(password);
        world.tell(reached).await;
        // Beside good ones that the driver has.
        let world = World::managed();
        world.tell(reached).await;
        world.set_password(password);
        world.tell(reached).await;
        world.set_password("better");
        world.tell(reached).await;
    }
    let world = World::managed();
    world.api.remove(SOURCE);
    world.tell(reached).await;

    let world = World::managed();
    world.api.put(
        SOURCE,
        json!({"metadata": {"name": "openstack-credentials"}, "data": {}}),
    );
    world.tell(reached).await;

    let world = World::managed();
    let malformed = k8s_openapi::ByteString(b"[Global]\nno sense".to_vec());
    world.api.put(
        SOURCE,
        json!({"metadata": {"name": "openstack-credentials"}, "data": {"cloud.conf": malformed}}),
    );
    world.tell(reached).await;

    let world = World::managed();
    world.api.hide("openstack-credentials");
    world.tell(reached).await;

    let world = World::with(
        |spec| {
            spec.clouds[0].credentials_secret_ref.key = "clouds.yaml".to_owned();
            spec.clouds[0].cloud_name = "nowhere".into();
        },
        |_| {},
    );
    let clouds = k8s_openapi::ByteString(b"clouds:\n  other:\n    auth: {auth_url: http://x}\n".to_vec());
    world.api.put(
        SOURCE,
        json!({"metadata": {"name": "openstack-credentials"}, "data": {"clouds.yaml": clouds}}),
    );
    world.tell(reached).await;

    let authorities = |spec: &mut CinderCSIDriverSpec| {
        spec.clouds[0].ca_bundle_ref = Some(CaBundleRef {
            kind: CaBundleKind::ConfigMap,
            name: "authorities".to_owned(),
            key: "ca.crt".to_owned(),
        });
    };
    World::with(authorities, |_| {}).tell(reached).await;
    let malformed = World::with(authorities, |_| {});
    malformed.api.put(
        "/api/v1/namespaces/cinder-csi/configmaps/authorities",
        json!({"metadata": {"name": "authorities"}, "data": {"ca.crt": "no PEM"}}),
    );
    malformed.tell(reached).await;

    let certificate = |spec: &mut CinderCSIDriverSpec| {
        spec.clouds[0].client_cert_secret_ref = Some(ClientCertRef {
            name: "absent".to_owned(),
        });
    };
    World::with(certificate, |_| {}).tell(reached).await;
}

async fn objects(reached: &mut Reached) {
    let world = World::managed();
    world.api.put(
        CLASS,
        json!({"metadata": {"name": "cinder"}, "provisioner": "example.org/other"}),
    );
    world.tell(reached).await;

    let world = World::managed();
    world.api.break_writes_to(Some(CSI_DRIVER));
    world.tell(reached).await;

    // Drift, another class with other parameters, and one less.
    let world = World::managed();
    world.tell(reached).await;
    world.tell(reached).await;
    world.api.change(DEPLOYMENT, "/spec/replicas", json!(0));
    world.api.change(CLASS, "/reclaimPolicy", json!("Retain"));
    world.tell(reached).await;
    world.api.put(
        "/api/v1/persistentvolumeclaims/c1",
        json!({"metadata": {"name": "c1", "namespace": "ns"}, "spec": {"storageClassName": "cinder"}, "status": {"phase": "Pending"}}),
    );
    world.patch_spec("storageClasses", json!({"items": [{"name": "other"}]}));
    world.tell(reached).await;

    let world = World::with(
        |spec| {
            let class = StorageClassItem {
                on_immutable_change: ImmutableChange::Refuse,
                ..StorageClassItem::named("cinder")
            };
            spec.storage_classes.items = Some(vec![class]);
        },
        |_| {},
    );
    world.tell(reached).await;
    world.api.change(CLASS, "/reclaimPolicy", json!("Retain"));
    world.tell(reached).await;

    let world = World::with(
        |spec| {
            spec.update.window = Some(UpdateWindow {
                schedule: "at night".to_owned(),
                duration: "1h".to_owned(),
                time_zone: "UTC".to_owned(),
            });
        },
        |_| {},
    );
    world.tell(reached).await;

    // A workload goes while an update waits.
    let world = World::managed();
    world.tell(reached).await;
    world.api.change(
        DAEMON_SET,
        "/metadata/labels/app.kubernetes.io~1version",
        json!("0.0.1"),
    );
    world.api.remove(DEPLOYMENT);
    world.patch_spec("update", json!({"policy": "Manual"}));
    world.tell(reached).await;

    let world = World::managed();
    world.tell(reached).await;
    world.put_snapshot_controller();
    world.tell(reached).await;

    // The definition of another release.
    let world = World::managed();
    world
        .context
        .cluster
        .set_wrong_definition("apply the definition of this release");
    world.tell(reached).await;

    let world = World::managed();
    let unreadable = json!({"metadata": {"name": NAME, "uid": "u"}, "spec": "none"});
    world.api.put(DRIVER, unreadable.clone());
    let unreadable: Watched = serde_json::from_value(unreadable).expect("a guard");
    let result = reconcile(Arc::new(unreadable), Arc::clone(&world.context)).await;
    result.expect_err("it cannot be read");
    reached.sent(world.api.kinds_of_events());
}

async fn nodes(reached: &mut Reached) {
    for broken in [None, Some("/nodes/")] {
        let world = World::with(
            |spec| {
                spec.node.startup_taint.enabled = true;
                spec.node.startup_taint.key = Some(TAINT.to_owned());
            },
            |_| {},
        );
        world.api.put("/api/v1/nodes/n1", node(true));
        world.api.break_writes_to(broken);
        world.tell(reached).await;
    }

    // A pod of an older revision.
    let pod = json!({
        "metadata": {"name": "node-1", "namespace": "cinder-csi", "uid": "pod-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): NODE_COMPONENT, (REVISION_LABEL): "old"}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let world = World::with(|_| {}, |index| put::<PodObject>(index, pod.clone()));
    world.api.put("/api/v1/namespaces/cinder-csi/pods/node-1", pod);
    world.tell(reached).await;
    let uid = world.api.get(DAEMON_SET).expect("the DaemonSet")["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cinder-csi-node", "uid": uid});
    world.api.put(
        "/apis/apps/v1/namespaces/cinder-csi/controllerrevisions/new",
        json!({"metadata": {"name": "new", "labels": {(INSTANCE_LABEL): NAME, (REVISION_LABEL): "new"}, "ownerReferences": [owner]},
            "revision": 2}),
    );
    world.tell(reached).await;

    // A claim that waits for long.
    let world = World::with(
        |_| {},
        |index| {
            put::<ClaimObject>(
                index,
                json!({"metadata": {"name": "c1", "namespace": "ns", "uid": "claim-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"volume.kubernetes.io/storage-provisioner": NAME}}, "status": {"phase": "Pending"}}),
            );
        },
    );
    world.tell(reached).await;
}

async fn removals(reached: &mut Reached) {
    const VOLUME: &str = "/api/v1/persistentvolumes/pv";
    let volume = || json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": NAME}}});
    let world = World::with(|_| {}, |_| {});
    world.api.put(VOLUME, volume());
    world.tell(reached).await;
    world.delete();
    world.tell(reached).await;

    let world = World::with(|_| {}, |_| {});
    world.tell(reached).await;
    world.api.hide("/persistentvolumes");
    world.delete();
    world.tell(reached).await;

    let world = World::with(|spec| spec.deletion.policy = DeletionPolicy::Orphan, |_| {});
    world.api.put(VOLUME, volume());
    world.tell(reached).await;
    world.delete();
    world.tell(reached).await;

    // A node that does not answer keeps the driver in its CSINode, and is not waited for for ever.
    let world = World::with(|_| {}, |index| put::<NodeObject>(index, node(false)));
    world.tell(reached).await;
    // Nor are the pods of its controller.
    world.api.put(
        "/api/v1/namespaces/cinder-csi/pods/c1",
        json!({"metadata": {"name": "c1", "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): "controller"}}, "spec": {"nodeName": "n1", "containers": []}}),
    );
    world.api.keep_pods_of(DEPLOYMENT);
    world.delete();
    world.tell(reached).await;
    world.since_long(CSI_DRIVER, UPDATES_STOPPED_SINCE);
    world.tell(reached).await;
    world.since_long(DAEMON_SET, UNREGISTERING_SINCE);
    world.tell(reached).await;
}

/// Answers on a port of its own as a pod of the controller does that uses the credentials of this hash.
async fn controller_pod(hash: Arc<Mutex<String>>) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The request fits into one packet, and what it asks for is known.
            let _ = stream.read(&mut [0; 4096]).await;
            let hash = hash.lock().expect("no poison").clone();
            let answer = format!("HTTP/1.0 200 OK\r\n\r\ncinder_csi_config_loaded_info{{hash=\"{hash}\"}} 1\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    json!({
        "metadata": {"name": "c1", "namespace": "cinder-csi", "uid": "c1",
            "labels": {(INSTANCE_LABEL): NAME, (COMPONENT_LABEL): CONTROLLER_COMPONENT}},
        "spec": {"containers": [{"name": "cinder-csi-driver", "ports": [{"name": DRIVER_PORT_NAME, "containerPort": port}]}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    })
}

async fn reloads(reached: &mut Reached) {
    let world = World::managed();
    let in_use = Arc::new(Mutex::new(String::new()));
    world.api.put(
        "/api/v1/namespaces/cinder-csi/pods/c1",
        controller_pod(Arc::clone(&in_use)).await,
    );
    for password in ["good", "better"] {
        world.set_password(password);
        // Given to the driver, and taken over a moment later.
        world.tell(reached).await;
        let secret = world.api.get(OWN_SECRET).expect("the driver's Secret");
        let secret = serde_json::from_value(secret).expect("a Secret");
        let given = DriverCredentials::from_secret(&secret).expect("credentials");
        given.short_hash().clone_into(&mut in_use.lock().expect("no poison"));
        world.tell(reached).await;
    }
}

/// Looks at a cloud, which counts requests and logins.
async fn clouds(reached: &mut Reached) {
    // A second installation in this process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sim = Sim::start(SimConfig::default()).await.expect("the simulator starts");
    let access = sim.access();
    let conf = format!(
        "[Global]\nauth-url = {}\napplication-credential-id = {}\napplication-credential-secret = {}\nregion = {}\n",
        access.auth_url, access.application_credential_id, access.application_credential_secret, access.region
    );
    let in_use = BTreeMap::from([("default".to_owned(), DriverCredentials::new(conf.into(), None))]);
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let (wake, mut seen) = crate::observe::wake_ups();
    let clouds = Clouds::new(CloudOptions::default(), Arc::clone(&metrics), wake);
    clouds.keep(NAME, &in_use, &HealthSettings::default(), &Proxies::default());
    let look = tokio::time::timeout(Duration::from_mins(1), seen.next()).await;
    look.expect("a look ends");
    reached.metrics(&metrics);
}

/// The Go driver is there, and the operator may write there or not.
async fn take_overs(reached: &mut Reached) {
    for hidden in [None, Some("/namespaces/kube-system/deployments")] {
        let world = World::with(|spec| spec.adoption.mode = AdoptionMode::Migrate, |_| {});
        world.api.put(
            "/apis/apps/v1/namespaces/kube-system/deployments/csi-cinder-controllerplugin",
            json!({"metadata": {"name": "csi-cinder-controllerplugin", "namespace": "kube-system", "uid": "old"},
                "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [
                    {"name": "cinder-csi-plugin", "image": "registry.k8s.io/provider-os/cinder-csi-plugin:v1.36.0"}]}}}}),
        );
        if let Some(part) = hidden {
            world.api.hide(part);
        }
        world.tell(reached).await;
    }
    let world = super::adoption::shown_to_start().await;
    world.api.break_writes_to(Some("/namespaces/cinder-csi/pods"));
    world.tell(reached).await;
    world.api.break_writes_to(None);
    world.tell(reached).await;
    super::adoption::since_long_stopped(&world);
    world.tell(reached).await;
}

async fn namespaces(reached: &mut Reached) {
    for (namespace, hidden) in [("nowhere", None), ("drivers", Some("/namespaces/drivers/"))] {
        let world = World::with(|spec| spec.operand_namespace = Some(namespace.to_owned()), |_| {});
        if let Some(part) = hidden {
            world.api.hide(part);
        }
        world.tell(reached).await;
    }
}

pub(crate) async fn reach(reached: &mut Reached) {
    Box::pin(credentials(reached)).await;
    Box::pin(objects(reached)).await;
    nodes(reached).await;
    removals(reached).await;
    take_overs(reached).await;
    Box::pin(reloads(reached)).await;
    clouds(reached).await;
    namespaces(reached).await;
}
