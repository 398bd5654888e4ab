//! Situations that lead to what the reference says of conditions and of the events that follow from them.

use std::{sync::Arc, time::Duration};

use cinder_cloud::{CloudError, Failure};
use cinder_csi_crds::{
    CinderCSIDriver, FailedNode, MonitoringMode, NodeRegistration, Override, OverrideTarget, OverrideType,
    SnapshotsMode, TopologyMode, TopologyStatus,
};

use super::*;
use crate::{
    clouds::{CloudFacts, CloudState, QuotaFact, Trouble, VolumeTypeFact, trouble},
    diagnosis::{Case, Operation, Suspect, Word, diagnose},
    metrics::Metrics,
    operands::Overridden,
    reference::reached::Reached,
    resolve::{
        ControllerSight, Environment, MOST_TYPES, Marked, Neighbour, resolve,
        tests::{mk_driver, mk_environment},
    },
    restrictions::Restrictions,
    rollout::Hold,
    status::{Drift, PodsView},
};

const NAME: &str = "cinder.csi.openstack.org";
const DAY: i64 = 24 * 3600;

/// The time of every situation.
fn now() -> Timestamp {
    at(2_000_000_000)
}

/// A working driver with something changed.
fn but(change: impl FnOnce(&mut Seen)) -> Seen {
    let mut seen = mk_healthy();
    change(&mut seen);
    seen
}

/// A working driver whose cloud has something changed.
fn but_cloud(change: impl FnOnce(&mut CloudView)) -> Seen {
    but(|seen| {
        let cloud = &mut seen.clouds[0];
        cloud.state = CloudState {
            is_known: true,
            facts: CloudFacts {
                compute_zones: vec!["a".to_owned(), "b".to_owned()],
                volume_zones: vec!["a".to_owned()],
                ..CloudFacts::default()
            },
            ..CloudState::default()
        };
        change(cloud);
        seen.has_topology = true;
    })
}

/// A driver whose spec or cluster has something changed, as the resolver judges it.
fn resolved(change: impl FnOnce(&mut CinderCSIDriver, &mut Environment)) -> Seen {
    let (mut driver, mut environment) = (mk_driver(NAME), mk_environment());
    change(&mut driver, &mut environment);
    but(|seen| match resolve(&driver, &environment) {
        Ok(resolved) => seen.classes = Some(ClassesView::new(&resolved)),
        Err(problems) => seen.problems = problems,
    })
}

/// An older driver beside it.
fn beside(change: impl FnOnce(&mut CinderCSIDriver)) -> Seen {
    resolved(|_, environment| {
        let mut other = mk_driver("other.example.org");
        other.metadata.creation_timestamp = Some(Time(at(1)));
        change(&mut other);
        environment.neighbours = vec![Neighbour::of(&other)];
    })
}

fn stuck(operation: Operation, change: impl FnOnce(&mut Case)) -> Seen {
    let mut case = Case {
        object: ("PersistentVolume", "pv".to_owned()),
        has_controller: true,
        node_exists: true,
        ..Case::default()
    };
    change(&mut case);
    let suspect = Suspect {
        operation,
        since: at(1),
        case,
    };
    but(|seen| {
        seen.count.volumes = 1;
        seen.stuck = vec![diagnose(&suspect)];
    })
}

fn failure(fault: &str) -> Failure {
    Failure {
        operation: "volume_list",
        object: String::new(),
        status: None,
        fault: fault.to_owned(),
        request_id: None,
        elapsed: Duration::ZERO,
    }
}

/// A cloud whose service fails like this.
fn troubled(error: &CloudError) -> Seen {
    let (reason, message) = trouble::of(error).expect("a trouble of the service");
    but_cloud(|cloud| {
        cloud.state.troubles = vec![Trouble {
            service: "compute",
            reason,
            message,
        }];
    })
}

fn unreachable(fault: &str) -> Seen {
    troubled(&CloudError::Unreachable {
        failure: failure(fault),
        sent: true,
    })
}

fn removal(removal: Removal) -> Seen {
    but(|seen| seen.removal = Some(removal))
}

fn blocked(blockers: Blockers) -> Seen {
    but(|seen| {
        seen.removal = Some(Removal::Blocked);
        seen.blockers = blockers;
    })
}

fn unrolled(outdated: usize) -> Seen {
    but(|seen| {
        seen.node_rollout = Some(NodeRollout {
            failed: vec![FailedNode {
                node: "n1".to_owned(),
                pod: None,
                reason: "no such image".to_owned(),
            }],
            lost: 1,
            limit: 1,
            ..mk_nodes(3, 3 - outdated)
        });
    })
}

fn headlines() -> Vec<Seen> {
    let nodes = |change: fn(&mut NodesView)| but(|seen| change(&mut seen.nodes));
    vec![
        mk_healthy(),
        Seen {
            clouds: vec![mk_cloud()],
            ..Seen::default()
        },
        but(|seen| seen.controller = None),
        but(|seen| seen.controller = Some(mk_workload(2, 2, 0))),
        but(|seen| seen.controller = Some(mk_workload(2, 1, 2))),
        but(|seen| seen.daemon_set = Some(mk_workload(3, 3, 0))),
        nodes(|nodes| *nodes = NodesView::default()),
        nodes(|nodes| nodes.unregistered = vec!["n3".to_owned()]),
        nodes(|nodes| nodes.registered = 0),
        but(|seen| {
            seen.controller = None;
            seen.clouds = vec![refused(None)];
        }),
        but(|seen| {
            seen.controller = Some(Workload {
                stalled: Some("quota exceeded".to_owned()),
                ..mk_workload(2, 2, 2)
            });
        }),
        but(|seen| {
            seen.controller = Some(Workload {
                lacking: vec!["cinder-csi-driver"],
                ..mk_workload(2, 2, 2)
            });
        }),
        but(|seen| seen.reload_failed = true),
        unrolled(1),
        unrolled(0),
        but(|seen| seen.gate = mk_gate("0.1.0", "0.2.0")),
    ]
}

fn held() -> Vec<Seen> {
    let hold = |hold| {
        but(|seen| {
            seen.gate = Gate {
                hold: Some(hold),
                ..mk_gate("0.1.0", "0.2.0")
            };
        })
    };
    let state = |state| but(|seen| seen.state = state);
    vec![
        hold(Hold::Approval),
        hold(Hold::Window(None)),
        hold(Hold::Downgrade),
        state(ManagementState::Paused),
        state(ManagementState::DryRun),
        state(ManagementState::Unmanaged),
        removal(Removal::Held),
        removal(Removal::UnderWay("pods".to_owned())),
        removal(Removal::Finished),
        blocked(Blockers {
            volumes: vec!["pv".to_owned()],
            ..Blockers::default()
        }),
        blocked(Blockers {
            snapshots: vec!["s".to_owned()],
            ..Blockers::default()
        }),
        but(|seen| {
            seen.removal = Some(Removal::Finished);
            seen.clouds.clear();
        }),
    ]
}

fn objects() -> Vec<Seen> {
    let obstacle = |obstacle| but(|seen| seen.obstacles = vec![obstacle]);
    let drift = |drift| but(|seen| seen.drift = drift);
    let monitoring = |mode, served| but(|seen| seen.monitoring = MonitoringView { mode, served });
    let overridden = |changed: &[&str], failed: &[&str]| {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let overridden = Overridden {
            changed: own(changed),
            failed: own(failed),
        };
        but(|seen| {
            seen.pods = Some(PodsView {
                overridden,
                ..PodsView::default()
            });
        })
    };
    let key = || Key::new(kind::ATTRIBUTES_CLASS, None, "gold");
    let fields = || vec!["parameters.type".to_owned()];
    vec![
        obstacle(Obstacle::Immutable {
            key: key(),
            fields: fields(),
        }),
        obstacle(Obstacle::Waiting {
            key: key(),
            fields: fields(),
            what: "claims".to_owned(),
        }),
        drift(Drift {
            changed: vec!["DaemonSet x (spec.template)".to_owned()],
            ..Drift::default()
        }),
        drift(Drift {
            deleted: vec!["DaemonSet x".to_owned()],
            ..Drift::default()
        }),
        Seen {
            state: ManagementState::Paused,
            ..drift(Drift {
                deleted: vec!["DaemonSet x".to_owned()],
                ..Drift::default()
            })
        },
        drift(Drift {
            kept: vec!["DaemonSet x (spec.template)".to_owned()],
            ..Drift::default()
        }),
        monitoring(MonitoringMode::Auto, true),
        monitoring(MonitoringMode::Auto, false),
        monitoring(MonitoringMode::Enabled, false),
        monitoring(MonitoringMode::Disabled, false),
        overridden(&["Deployment x"], &[]),
        overridden(&[], &["spec.overrides[0]: no such object"]),
    ]
}

fn specs() -> Vec<Seen> {
    let snapshots = |mode, is_served, sight: ControllerSight| {
        resolved(move |driver, environment| {
            driver.spec.snapshots.mode = mode;
            environment.apis.snapshots = is_served;
            environment.snapshot_controller = sight;
        })
    };
    let auto = SnapshotsMode::Auto;
    let zones = |mode, was_enabled: bool, zoned_volumes| {
        resolved(move |driver, environment| {
            driver.spec.topology.mode = mode;
            let topology = was_enabled.then(|| TopologyStatus {
                enabled: true,
                ..TopologyStatus::default()
            });
            driver.status = Some(CinderCSIDriverStatus {
                topology,
                ..CinderCSIDriverStatus::default()
            });
            environment.zoned_volumes = zoned_volumes;
        })
    };
    let crowded = resolved(|driver, environment| {
        driver.spec.storage_classes.from_volume_types.enabled = true;
        let volume_type = |at| VolumeTypeFact {
            name: format!("t{at}"),
            ..VolumeTypeFact::default()
        };
        let facts = CloudFacts {
            volume_types: (0..=MOST_TYPES).map(volume_type).collect(),
            ..CloudFacts::default()
        };
        environment.clouds = [(driver.spec.clouds[0].name.clone(), facts)].into();
    });
    let restricted = |change: fn(&mut Restrictions)| {
        resolved(move |driver, environment| {
            driver.spec.overrides = vec![Override {
                target: OverrideTarget {
                    kind: "DaemonSet".to_owned(),
                    name: "cinder-csi-node".to_owned(),
                },
                kind: OverrideType::Merge,
                patch: "{}".to_owned(),
            }];
            change(&mut environment.restrictions);
        })
    };
    vec![
        crowded,
        restricted(|restrictions| restrictions.no_overrides = true),
        restricted(|restrictions| restrictions.registries = vec!["registry.example.org".to_owned()]),
        snapshots(SnapshotsMode::Disabled, true, ControllerSight::Unseen),
        snapshots(SnapshotsMode::Enabled, false, ControllerSight::Unseen),
        snapshots(auto, false, ControllerSight::Unseen),
        snapshots(auto, true, ControllerSight::Found("x".to_owned())),
        snapshots(auto, true, ControllerSight::Missing),
        snapshots(auto, true, ControllerSight::Unknown("403".to_owned())),
        snapshots(auto, true, ControllerSight::Down("x".to_owned())),
        zones(TopologyMode::Disabled, true, 1),
        zones(TopologyMode::Enabled, false, 0),
        zones(TopologyMode::Disabled, false, 0),
        resolved(|_, environment| {
            environment.classes.marked = vec![Marked {
                made: "2026-01-01T00:00:00Z".to_owned(),
                name: "theirs".to_owned(),
                by: None,
            }];
        }),
        resolved(|_, environment| {
            environment.kubernetes_version = crate::resolve::KubernetesVersion::parse("1", "20");
        }),
        resolved(|_, environment| environment.cluster_uid = None),
        resolved(|driver, _| driver.spec.node.kubelet_dir = format!("/{}", "x".repeat(120))),
        resolved(|driver, _| {
            driver.spec.node.http_port = u16::MAX;
            driver.spec.node.registration = NodeRegistration::Sidecar;
        }),
        resolved(|driver, _| {
            let types = &mut driver.spec.storage_classes.from_volume_types;
            (types.enabled, types.include) = (true, Some("(".to_owned()));
        }),
        resolved(|driver, _| {
            driver
                .spec
                .topology
                .additional
                .insert("no label".to_owned(), "x".to_owned());
        }),
        beside(|_| {}),
        beside(|other| {
            other.spec.instance_name = Some("cinder-csi".to_owned());
            other.spec.node.http_port = 20_000;
        }),
    ]
}

fn clouds() -> Vec<Seen> {
    let ends = |days: i64| {
        but_cloud(|cloud| cloud.state.credential = Some(("csi".to_owned(), Some(at(now().as_second() + days * DAY)))))
    };
    let used = |used| {
        but_cloud(|cloud| {
            cloud.state.facts.quota = vec![QuotaFact {
                resource: "gigabytes".to_owned(),
                used,
                limit: 100,
                ..QuotaFact::default()
            }];
        })
    };
    let zone = |zone: &str| {
        let mut seen = but_cloud(|_| {});
        seen.node_zones.insert(zone.to_owned());
        seen
    };
    let other = |hash: &str, loaded| {
        but_cloud(|cloud| {
            cloud.hash = Some(hash.to_owned());
            cloud.loaded = Some(loaded);
        })
    };
    vec![
        ends(100),
        ends(10),
        ends(1),
        ends(-1),
        unreachable("operation timed out"),
        unreachable("dns error: failed to lookup"),
        unreachable("invalid peer certificate: UnknownIssuer"),
        unreachable("invalid peer certificate: Expired"),
        unreachable("connection refused"),
        troubled(&CloudError::Throttled {
            failure: failure("slow down"),
            retry_after: None,
        }),
        troubled(&CloudError::NoEndpoint {
            service: "compute",
            region: None,
            interface: "public",
            known: String::new(),
        }),
        used(85),
        used(100),
        zone("b"),
        zone("lost"),
        but_cloud(|cloud| cloud.is_insecure = true),
        other("one", true),
        other("two", false),
        other("two", true),
    ]
}

fn volumes() -> Vec<Seen> {
    let volume = serde_json::from_value(
        json!({"id": "v", "name": "pvc", "size": 1, "status": "error", "attachments": [],
        "availability_zone": "a", "multiattach": false, "metadata": {}}),
    );
    let volume = Arc::new(Word::Found(volume.expect("a volume")));
    Operation::ALL
        .into_iter()
        .map(|operation| stuck(operation, |_| {}))
        .chain([
            stuck(Operation::Attach, |case| {
                case.node = Some("n1".to_owned());
                case.node_exists = false;
            }),
            stuck(Operation::Delete, |case| case.volume = (*volume).clone()),
        ])
        .collect()
}

/// What lasts so long that the driver is not called available any more.
fn lasting() -> Vec<(CinderCSIDriverStatus, Seen)> {
    let away = but_cloud(|cloud| {
        cloud.refusal = Some(Problem {
            reason: "CloudUnreachable",
            message: "connection refused".to_owned(),
        });
    });
    let missing = troubled(&CloudError::NoEndpoint {
        service: "compute",
        region: None,
        interface: "public",
        known: String::new(),
    });
    [but(|seen| seen.clouds = vec![refused(Some("good"))]), away, missing]
        .into_iter()
        .map(|seen| (status(None, &seen, at(now().as_second() - 3600)), seen))
        .collect()
}

pub(crate) fn reach(reached: &mut Reached) {
    let metrics = Metrics::new().expect("metrics");
    let mut before: Vec<CinderCSIDriverStatus> = vec![status(None, &mk_healthy(), at(1))];
    for seen in [headlines(), held(), objects(), specs(), clouds(), volumes()].concat() {
        let told = status(None, &seen, now());
        reached.status(&told);
        reached.notices(status_expiring(&told).as_slice());
        reached.notices(seen.classes.iter().filter_map(left_out).collect::<Vec<_>>().as_slice());
        metrics.seen("d", &seen, now());
        metrics.rollout("d", told.rollout.as_ref());
        reached.metrics(&metrics);
        // Whatever was before: both ways.
        for old in &before {
            reached.notices(&notices(Some(old), &told));
            reached.notices(&notices(Some(&told), old));
        }
        before.push(told);
    }
    let (_, conditions) = unreadable(&json!({}), None, "unknown variant", true, now());
    reached.status(&CinderCSIDriverStatus {
        conditions,
        ..CinderCSIDriverStatus::default()
    });
    for (before, seen) in lasting() {
        reached.status(&status(Some(&before), &seen, now()));
    }
}

fn status_expiring(told: &CinderCSIDriverStatus) -> Vec<Notice> {
    expiring(told).into_iter().collect()
}
