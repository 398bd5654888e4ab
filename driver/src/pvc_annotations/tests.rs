// SPDX-License-Identifier: Apache-2.0

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use cinder_cloud::{CloudConfig, CloudOptions};
use csi_proto::csi::v1::controller_server::Controller;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::csi::v1::{CreateVolumeRequest, VolumeCapability};
use openstack_sim::{Sim, SimConfig};
use tonic::{Code, Request, Status};

use super::*;
use crate::clouds::Clouds;
use crate::controller::{ControllerService, Settings};
use crate::operations::{Limits, Operations};
use crate::parameters::METADATA_CLUSTER;

/// Serves one response, and returns the request that it received.
fn api(status: &str, body: &str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut part).expect("a request");
            request.extend_from_slice(&part[..read]);
        }
        // A client that stops reading closes the connection.
        drop(stream.write_all(answer.as_bytes()));
        String::from_utf8(request).expect("text")
    });
    (address, served)
}

fn claims(address: &str, folder: &tempfile::TempDir) -> PvcAnnotations {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    std::fs::write(folder.path().join("token"), "the-token\n").expect("a file");
    PvcAnnotations {
        address: address.to_owned(),
        account: folder.path().to_owned(),
    }
}

#[tokio::test]
async fn annotations_are_read_with_service_account_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let body = r#"{"metadata":{"name":"data","annotations":{
        "cinder.csi.openstack.org/affinity":"one, two,,","cinder.csi.openstack.org/anti-affinity":"three","else":"x"}}}"#;
    let (address, served) = api("200 OK", body);
    let hints = claims(&address, &folder).hints("shop", "data").await.expect("read");
    let request = served.join().expect("served").to_lowercase();
    assert!(
        request.starts_with("get /api/v1/namespaces/shop/persistentvolumeclaims/data "),
        "{request}"
    );
    assert!(request.contains("authorization: bearer the-token\r\n"), "{request}");
    let expected = Hints {
        affinity: vec!["one".into(), "two".into()],
        anti_affinity: vec!["three".into()],
    };
    assert_eq!(hints, expected);
}

#[tokio::test]
async fn missing_claim_or_annotations_give_no_hints() {
    let folder = tempfile::tempdir().expect("a folder");
    for (status, body) in [("200 OK", r#"{"metadata":{}}"#), ("404 Not Found", "{}")] {
        let (address, _served) = api(status, body);
        let hints = claims(&address, &folder).hints("shop", "data").await.expect("read");
        assert_eq!(hints, Hints::default(), "{status}");
    }
}

#[tokio::test]
async fn refusal_names_claim_and_missing_permission() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, _served) = api("403 Forbidden", "{}");
    let error = claims(&address, &folder)
        .hints("shop", "data")
        .await
        .expect_err("refused");
    let text = error.to_string();
    assert!(
        text.contains("shop/data") && text.contains("get on persistentvolumeclaims"),
        "{text}"
    );
    let error = claims("https://127.0.0.1:1", &folder)
        .hints("shop", "data")
        .await
        .expect_err("no CA");
    assert!(error.to_string().contains("ca.crt"), "{error}");
}

#[tokio::test]
async fn rejects_response_larger_than_any_claim() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, served) = api("200 OK", &" ".repeat(CLAIM_LIMIT + 1));
    let error = claims(&address, &folder)
        .hints("shop", "data")
        .await
        .expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("shop/data") && text.contains("4194304 bytes"), "{text}");
    drop(served);
}

/// A cloud, and a controller that reads this claim for every new volume.
async fn controller(claim: &str, folder: &tempfile::TempDir) -> (Sim, Cloud, ControllerService) {
    let (address, _served) = api("200 OK", claim);
    let claims = claims(&address, folder);
    let sim = Sim::start(SimConfig::default()).await.expect("a cloud");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a configuration");
    let cloud = Cloud::new(config, CloudOptions::default()).expect("a client");
    let settings = Settings {
        claims: Some(claims),
        ..Settings::default()
    };
    let service = ControllerService::new(
        Clouds::single(cloud.clone()),
        Operations::new(Limits::default()),
        settings,
    );
    (sim, cloud, service)
}

fn request(name: &str, claim: Option<&str>) -> Request<CreateVolumeRequest> {
    let capability = VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    let of_claim = claim.into_iter().flat_map(|claim| {
        [
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pvc/name", claim),
        ]
    });
    Request::new(CreateVolumeRequest {
        name: name.into(),
        volume_capabilities: vec![capability],
        parameters: of_claim
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        ..CreateVolumeRequest::default()
    })
}

async fn create(
    service: &ControllerService,
    name: &str,
    claim: Option<&str>,
) -> Result<csi_proto::csi::v1::Volume, Status> {
    let answer = service.create_volume(request(name, claim)).await?;
    Ok(answer.into_inner().volume.expect("a volume"))
}

/// Creates a volume whose claim has these affinities.
async fn hinted(
    cloud: &Cloud,
    folder: &tempfile::TempDir,
    name: &str,
    volumes: &str,
) -> Result<csi_proto::csi::v1::Volume, Status> {
    let claim = format!(r#"{{"metadata":{{"annotations":{{"{AFFINITY}":"{volumes}"}}}}}}"#);
    let (address, _served) = api("200 OK", &claim);
    let settings = Settings {
        claims: Some(claims(&address, folder)),
        ..Settings::default()
    };
    let operations = Operations::new(Limits::default());
    let service = ControllerService::new(Clouds::single(cloud.clone()), operations, settings);
    create(&service, name, Some("data")).await
}

#[tokio::test]
async fn claim_annotations_become_scheduler_hints_issue_2687() {
    let folder = tempfile::tempdir().expect("a folder");
    // One volume is referenced by name, because the id of the other is unknown before its creation.
    let claim = r#"{"metadata":{"annotations":{
        "cinder.csi.openstack.org/affinity":"first","cinder.csi.openstack.org/anti-affinity":"second, third"}}}"#;
    let (sim, _cloud, service) = controller(claim, &folder).await;
    let mut ids = Vec::new();
    for name in ["first", "second", "third"] {
        ids.push(create(&service, name, None).await.expect("a volume").volume_id);
    }
    let created = create(&service, "pvc-1", Some("data")).await.expect("a volume");
    let state = sim.state();
    let hints = &state.volume(&created.volume_id).expect("in the cloud").scheduler_hints;
    let anti_affinity = vec![ids[1].clone(), ids[2].clone()];
    let expected = [
        ("same_host", vec![ids[0].clone()]),
        ("different_host", anti_affinity.clone()),
    ];
    assert_eq!(*hints, expected.map(|(key, ids)| (key.to_owned(), ids)).into());
    assert_eq!(created.volume_context["affinity"], ids[0]);
    assert_eq!(created.volume_context["anti-affinity"], anti_affinity.join(","));
    for id in ids {
        let volume = state.volume(&id).expect("in the cloud");
        assert!(volume.scheduler_hints.is_empty(), "no claim asked for it");
    }
}

#[tokio::test]
async fn hint_accepts_volume_id_and_rejects_unknown_issue_2687() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sim, cloud, service) = controller("", &folder).await;
    let other = create(&service, "other", None).await.expect("a volume").volume_id;
    // Name and id refer to the same volume, and Cinder rejects duplicates.
    let created = hinted(&cloud, &folder, "pvc-1", &format!("{other}, other"))
        .await
        .expect("a volume");
    let state = sim.state();
    let hints = &state.volume(&created.volume_id).expect("in the cloud").scheduler_hints;
    assert_eq!(hints["same_host"], [other]);
    let refusal = hinted(&cloud, &folder, "pvc-2", "nobody")
        .await
        .expect_err("nobody has that name");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(
        refusal.message().contains("nobody") && refusal.message().contains(AFFINITY),
        "{refusal}"
    );
    assert_eq!(sim.state().volumes.len(), 2, "nothing was made");
}

#[tokio::test]
async fn volumes_of_other_clusters_are_not_revealed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sim, cloud, service) = controller("", &folder).await;
    let other = create(&service, "other", None).await.expect("a volume").volume_id;
    assert!(sim.set_volume(&other, |volume| {
        let another = (METADATA_CLUSTER.to_owned(), "another".to_owned());
        volume.metadata.extend([another]);
    }));
    let missing = hinted(&cloud, &folder, "pvc-1", "nothing")
        .await
        .expect_err("no such volume");
    for name in ["other", &other] {
        let refusal = hinted(&cloud, &folder, "pvc-1", name).await.expect_err("not ours");
        let expected = missing.message().replace("nothing", name);
        assert_eq!((refusal.code(), refusal.message()), (missing.code(), expected.as_str()));
    }
}

#[tokio::test]
async fn existing_volume_ignores_hint_to_deleted_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sim, cloud, service) = controller("", &folder).await;
    let other = create(&service, "other", None).await.expect("a volume").volume_id;
    let created = hinted(&cloud, &folder, "pvc-1", "other").await.expect("a volume");
    cloud.delete_volume(&VolumeId::new(other)).await.expect("deleted");
    let again = hinted(&cloud, &folder, "pvc-1", "other").await;
    let again = again.expect("the same volume");
    assert_eq!(again.volume_id, created.volume_id);

    // A volume of another cluster was not created by this request.
    assert!(sim.set_volume(&created.volume_id, |volume| {
        volume
            .metadata
            .insert(METADATA_CLUSTER.to_owned(), "another".to_owned());
    }));
    let refusal = hinted(&cloud, &folder, "pvc-1", "other").await;
    let refusal = refusal.expect_err("not ours");
    assert_eq!(refusal.code(), Code::Aborted);
}
