// SPDX-License-Identifier: Apache-2.0
//! Compatibility with classes and files of the Go driver. Each parameter works, or its refusal contains the key.

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::CloudConfig;
use csi_proto::csi::v1::{CreateSnapshotRequest, CreateVolumeRequest};
use openstack_sim::{Backup, Volume};
use tonic::{Code, Status};

use crate::support::{Driver, NODE, cloud, create_request, patient, refused};

fn one(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

/// A parameter of a StorageClass: a valid value, its effect on the volume, and an invalid value.
struct OfClass {
    key: &'static str,
    value: &'static str,
    does: fn(&Volume, &BTreeMap<String, String>) -> bool,
    wrong: Option<&'static str>,
}

const OF_CLASS: [OfClass; 12] = [
    OfClass {
        key: "type",
        value: "slow",
        does: |volume, _| volume.volume_type == "slow",
        wrong: Some("nonesuch"),
    },
    OfClass {
        key: "availability",
        value: "east",
        does: |volume, _| volume.availability_zone == "east",
        wrong: Some("nowhere"),
    },
    OfClass {
        key: "mkfsOptions",
        value: "-N 1000",
        does: |_, context| context["mkfsOptions"] == "-N 1000" && context["mkfs-options"] == "-N 1000",
        wrong: None,
    },
    // Since cinder-csi-plugin 1.36.
    OfClass {
        key: "mkfs-options",
        value: "-N 1000",
        does: |_, context| context["mkfsOptions"] == "-N 1000" && context["mkfs-options"] == "-N 1000",
        wrong: None,
    },
    OfClass {
        key: "allowVolumeModeChange",
        value: "true",
        does: |_, context| context.is_empty(),
        wrong: Some("yes"),
    },
    // Since the Go driver 1.36.
    OfClass {
        key: "appendVolumeMetadata",
        value: r#"{"owner": "shop", "tier": "gold"}"#,
        does: |volume, _| volume.metadata["owner"] == "shop" && volume.metadata["tier"] == "gold",
        wrong: Some(r#"{"tier": 1}"#),
    },
    // csi-provisioner converts it to the file system of the capability. Otherwise it has no effect.
    OfClass {
        key: "csi.storage.k8s.io/fstype",
        value: "xfs",
        does: |volume, context| volume.volume_type == "fast" && context.is_empty(),
        wrong: None,
    },
    OfClass {
        key: "csi.storage.k8s.io/pvc/name",
        value: "data",
        does: |volume, _| volume.metadata["csi.storage.k8s.io/pvc/name"] == "data",
        wrong: None,
    },
    OfClass {
        key: "csi.storage.k8s.io/pvc/namespace",
        value: "shop",
        does: |volume, _| volume.metadata["csi.storage.k8s.io/pvc/namespace"] == "shop",
        wrong: None,
    },
    OfClass {
        key: "csi.storage.k8s.io/pv/name",
        value: "pv-1",
        does: |volume, _| volume.metadata["csi.storage.k8s.io/pv/name"] == "pv-1",
        wrong: None,
    },
    OfClass {
        key: "csi.storage.k8s.io/provisioner-secret-name",
        value: "credentials",
        does: |volume, _| {
            !volume
                .metadata
                .contains_key("csi.storage.k8s.io/provisioner-secret-name")
        },
        wrong: None,
    },
    // Unknown parameters are logged and ignored, as users of the Go driver expect.
    OfClass {
        key: "tpye",
        value: "slow",
        does: |volume, context| volume.volume_type == "fast" && context.is_empty(),
        wrong: None,
    },
];

#[tokio::test(start_paused = true)]
async fn storage_class_parameters_work_or_are_refused() {
    let sim = cloud(|config| config.zones = vec!["nova".into(), "east".into()]).await;
    let driver = Driver::start(&sim);
    for (
        number,
        OfClass {
            key,
            value,
            does,
            wrong,
        },
    ) in OF_CLASS.into_iter().enumerate()
    {
        let with = |value: &str| CreateVolumeRequest {
            parameters: one(key, value),
            ..create_request(&format!("pvc-{number}"))
        };
        if let Some(wrong) = wrong {
            let refusal = refused(driver.create(with(wrong)).await, Code::InvalidArgument);
            assert!(refusal.contains(wrong) || refusal.contains(key), "{key}: {refusal}");
        }
        let created = driver.create(with(value)).await.expect(key);
        let state = sim.state();
        let volume = state.volume(&created.volume_id).expect("in the cloud");
        assert!(
            does(volume, &created.volume_context),
            "{key}: {volume:?} {:?}",
            created.volume_context
        );
    }
    // The only key of the Go driver's secrets.
    let elsewhere = CreateVolumeRequest {
        secrets: one("cloud", "west"),
        ..create_request("pvc-west")
    };
    let refusal = refused(driver.create(elsewhere).await, Code::InvalidArgument);
    assert!(refusal.contains("cloud"), "{refusal}");
}

async fn take_snapshot(driver: &Driver, name: &str, volume: &str, parameters: &[(&str, &str)]) -> Result<(), Status> {
    let request = CreateSnapshotRequest {
        name: name.into(),
        source_volume_id: volume.into(),
        parameters: parameters
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        ..CreateSnapshotRequest::default()
    };
    driver.controller().create_snapshot(patient(request)).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn snapshot_class_parameters_work_or_are_refused() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    for (key, wrong) in [
        ("type", "bakcup"),
        ("force-create", "maybe"),
        ("incremental", "a little"),
        ("backup-max-duration-seconds-per-gb", "soon"),
    ] {
        let refusal = refused(
            take_snapshot(&driver, "wrong", &volume, &[(key, wrong)]).await,
            Code::InvalidArgument,
        );
        assert!(refusal.contains(key) && refusal.contains(wrong), "{key}: {refusal}");
    }
    let backup = [("type", "backup")];
    // A slow backup is ready for the next call, as csi-snapshotter sends it.
    let complete = async |name: &str, more: &[(&str, &str)]| -> Backup {
        let parameters = [&backup, more].concat();
        for _ in 0..2 {
            take_snapshot(&driver, name, &volume, &parameters).await.expect(name);
            assert!(sim.settled(Duration::from_secs(10)).await);
        }
        let created = sim
            .state()
            .backups
            .into_iter()
            .find(|created| created.name.as_deref() == Some(name));
        created.expect(name)
    };
    let full = complete("full", &[]).await;
    assert_eq!(
        (full.parent_id, full.availability_zone.as_deref()),
        (None, Some("nova"))
    );
    let incremental = complete("incremental", &[("incremental", "true")]).await;
    assert_eq!(incremental.parent_id, Some(full.id));
    complete("patient", &[("backup-max-duration-seconds-per-gb", "30")]).await;
    let marked = complete("marked", &[("appendVolumeMetadata", r#"{"owner": "shop"}"#)]).await;
    assert_eq!(marked.metadata["owner"], "shop");
    let placed = complete("placed", &[("availability", "elsewhere")]).await;
    assert_eq!(placed.availability_zone.as_deref(), Some("elsewhere"));

    driver.publish(&volume, NODE).await.expect("attached");
    let careful = take_snapshot(&driver, "careful", &volume, &[("force-create", "false")]).await;
    assert!(refused(careful, Code::FailedPrecondition).contains("force-create"));
    take_snapshot(
        &driver,
        "forced",
        &volume,
        &[("type", "snapshot"), ("force-create", "true")],
    )
    .await
    .expect("cut while it is in use");
    take_snapshot(&driver, "strange", &volume, &[("tpye", "backup")])
        .await
        .expect("what nobody knows is logged and does nothing");
}

/// Complete logins of each kind.
const BY_PASSWORD: &str = "auth-url=https://k\nusername=u\npassword=p\ntenant-name=t\ndomain-name=d\n";
const BY_CREDENTIAL: &str = "auth-url=https://k\napplication-credential-id=i\napplication-credential-secret=s\n";
const BY_NAME: &str = "auth-url=https://k\nuser-id=u\napplication-credential-name=n\napplication-credential-secret=s\n";
const BY_TRUST: &str = "auth-url=https://k\ntrust-id=t\ntrustee-id=u\ntrustee-password=p\n";
const BY_TOKEN: &str = "auth-url=https://k\ntoken=t\ntenant-name=t\ntenant-domain-name=d\n";

/// Each key of the Go driver's `cloud.conf`, with its section and line, and a login on which it has an effect.
const KEYS: [(&str, &str, &str); 31] = [
    (BY_PASSWORD, "Global", "auth-url=https://other"),
    (BY_PASSWORD, "Global", "username=other"),
    (BY_PASSWORD, "Global", "user-id=other"),
    (BY_PASSWORD, "Global", "password=other"),
    (BY_PASSWORD, "Global", "tenant-id=other"),
    (BY_PASSWORD, "Global", "tenant-name=other"),
    (BY_PASSWORD, "Global", "domain-id=other"),
    (BY_PASSWORD, "Global", "domain-name=other"),
    (BY_PASSWORD, "Global", "tenant-domain-id=other"),
    (BY_PASSWORD, "Global", "tenant-domain-name=other"),
    (BY_PASSWORD, "Global", "user-domain-id=other"),
    (BY_PASSWORD, "Global", "user-domain-name=other"),
    (BY_TRUST, "Global", "trust-id=other"),
    (BY_TRUST, "Global", "trustee-id=other"),
    (BY_TRUST, "Global", "trustee-password=other"),
    (BY_CREDENTIAL, "Global", "application-credential-id=other"),
    (BY_CREDENTIAL, "Global", "application-credential-secret=other"),
    (BY_NAME, "Global", "application-credential-name=other"),
    (BY_TOKEN, "Global", "token=other"),
    (BY_PASSWORD, "Global", "region=other"),
    (BY_PASSWORD, "Global", "os-endpoint-type=internal"),
    (BY_PASSWORD, "Global", "ca-file=/ca.crt"),
    (BY_PASSWORD, "Global", "tls-insecure=true"),
    (BY_PASSWORD, "Global", "cert-file=/c\nkey-file=/k"),
    (BY_PASSWORD, "BlockStorage", "node-volume-attach-limit=20"),
    (BY_PASSWORD, "BlockStorage", "rescan-on-resize=true"),
    (BY_PASSWORD, "BlockStorage", "ignore-volume-az=true"),
    (BY_PASSWORD, "BlockStorage", "ignore-volume-microversion=true"),
    (BY_PASSWORD, "Metadata", "search-order=metadataService"),
    (BY_PASSWORD, "Metadata", "request-timeout=5s"),
    (BY_PASSWORD, "Global", "use-clouds=true"),
];

/// Keys that the Go driver ignores as well: obsolete ones, and those of the cloud controller manager, which shares the
/// file.
const WITHOUT_EFFECT: [(&str, &str); 5] = [
    ("BlockStorage", "bs-version=v3"),
    ("BlockStorage", "trust-device-path=false"),
    ("Networking", "public-network-name=public"),
    ("LoadBalancer", "enabled=false"),
    ("Route", "router-id=r"),
];

/// Returns the configuration of a file in canonical form.
fn meaning(conf: &str) -> Result<String, String> {
    let read = CloudConfig::from_cloud_conf(conf).map_err(|error| error.to_string())?;
    assert_eq!(read.warnings, Vec::<String>::new(), "{conf}");
    Ok(read.to_cloud_conf(None))
}

#[test]
fn cloud_conf_keys_have_effect_or_are_refused() {
    for (login, section, line) in KEYS {
        let login = format!("[Global]\n{login}");
        let before = meaning(&login).expect("a complete login");
        match meaning(&format!("{login}[{section}]\n{line}\n")) {
            Ok(after) => assert_ne!(after, before, "{line} does nothing"),
            Err(refusal) => {
                // A second user name is refused, as in cinder-csi-plugin, and so is a clouds.yaml in a text.
                let key = line.split('=').next().unwrap_or_default();
                assert!(refusal.contains(key), "{line}: {refusal}");
            }
        }
    }
    let login = format!("[Global]\n{BY_PASSWORD}");
    for (section, line) in WITHOUT_EFFECT {
        let after = meaning(&format!("{login}[{section}]\n{line}\n"));
        assert_eq!(after, meaning(&login), "{line}");
    }
}
