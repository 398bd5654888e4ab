// SPDX-License-Identifier: Apache-2.0
//! Tests of the state machine.

use csi_sources::Sources;

use super::{Caller, NewMapping, NewSnapshot, NewVolume, NextStep, Rules, World};
use crate::config::{Quota, ServerSpec, VolumeType};
use crate::microversion::Version;
use crate::state::{AttachmentStatus, GroupType, Mapping, VolumeStatus};

const SERVER: &str = "7c0d4f5e-1b2a-4c3d-8e9f-0a1b2c3d4e5f";
const OTHER: &str = "8d1e5a6f-2c3b-4d4e-9fa0-1b2c3d4e5f60";
const ALL: &[VolumeStatus] = VolumeStatus::ALL;

fn world() -> World {
    let mut world = World::new(
        Rules {
            zones: vec!["nova".to_owned()],
            compute_zones: Vec::new(),
            group_types: vec![GroupType::consistent("consistent")],
            pools: Vec::new(),
            clones_hold_sources: false,
            backups: true,
            copies_across_zones: false,
            volume_types: vec![
                VolumeType::new("fast"),
                VolumeType {
                    multiattach: true,
                    ..VolumeType::new("shared")
                },
            ],
            quota: Quota::default(),
            volumes_per_server: 30,
        },
        Sources::system(),
    );
    world.add_server(ServerSpec::new(SERVER));
    world.add_server(ServerSpec::new(OTHER));
    world
}

fn wish() -> NewMapping {
    NewMapping {
        device: None,
        tag: None,
        delete_on_termination: false,
        version: Version(2, 90),
        admin: false,
    }
}

fn caller() -> Caller {
    Caller {
        version: Version(2, 90),
        admin: false,
        cinder_fails: false,
    }
}

/// Starts an attach, up to Nova's response.
fn attach(world: &mut World, server: &str, id: &str) -> Mapping {
    match world.begin_attach(server, id, wish(), "req-1") {
        Ok(NextStep::OnHost(mapping)) => mapping,
        other => panic!("it cannot be attached: {other:?}"),
    }
}

/// Starts a detach, up to Nova's response.
fn detach(world: &mut World, server: &str, id: &str) -> Mapping {
    match world.begin_detach(server, id, caller(), "req-2") {
        Ok(NextStep::OnHost(mapping)) => mapping,
        other => panic!("it cannot be detached: {other:?}"),
    }
}

/// Creates a volume and sets this status, as `os-reset_status` does.
fn volume(world: &mut World, status: VolumeStatus) -> String {
    let new = NewVolume {
        size: Some(1),
        ..NewVolume::default()
    };
    let id = world.begin_create(new).expect("a volume is made").id;
    world.schedule(&id);
    world.set_status(&id, status);
    id
}

fn status(world: &World, id: &str) -> VolumeStatus {
    world.volume(id).expect("the volume is there").status
}

#[test]
fn operations_require_their_start_states() {
    use VolumeStatus::{Available, Error, ErrorExtending, ErrorManaging, ErrorRestoring};
    type Begin = fn(&mut World, &str) -> bool;
    let operations: [(&str, &[VolumeStatus], Begin); 4] = [
        (
            "delete",
            &[Available, Error, ErrorExtending, ErrorRestoring, ErrorManaging],
            |world, id| world.begin_delete(id, false, false).is_ok(),
        ),
        ("extend", &[Available], |world, id| {
            world.begin_extend(id, 2, false).is_ok()
        }),
        ("snapshot", &[Available], |world, id| {
            let new = NewSnapshot {
                volume_id: id.to_owned(),
                name: None,
                description: None,
                force: None,
                metadata: None,
            };
            world.begin_snapshot(new, false).is_ok()
        }),
        ("attach", &[Available], |world, id| {
            world.begin_attach(SERVER, id, wish(), "req-1").is_ok()
        }),
    ];
    for (name, allowed, begin) in operations {
        for &before in ALL {
            let mut world = world();
            let id = volume(&mut world, before);
            assert_eq!(
                begin(&mut world, &id),
                allowed.contains(&before),
                "{name} of a volume that is {before}"
            );
            if !allowed.contains(&before) {
                assert_eq!(status(&world, &id), before, "a refused {name} changes nothing");
            }
        }
    }
}

#[test]
fn attach_and_detach_pass_all_states() {
    let mut world = world();
    let id = volume(&mut world, VolumeStatus::Available);
    let mapping = attach(&mut world, SERVER, &id);
    let state = |world: &World| (status(world, &id), world.attachments_of(&id)[0].status);
    assert_eq!(state(&world), (VolumeStatus::Reserved, AttachmentStatus::Reserved));
    world.connect(&mapping.attachment_id).expect("the attachment is there");
    assert_eq!(state(&world), (VolumeStatus::Attaching, AttachmentStatus::Attaching));
    world.end_attach(&mapping, None);
    assert_eq!(state(&world), (VolumeStatus::InUse, AttachmentStatus::Attached));

    let mapping = detach(&mut world, SERVER, &id);
    assert_eq!(status(&world, &id), VolumeStatus::Detaching);
    assert!(
        world.begin_detach(SERVER, &id, caller(), "req-3").is_err(),
        "once is enough"
    );
    world.end_detach(&mapping);
    assert_eq!(status(&world, &id), VolumeStatus::Available);
    assert!(world.attachments_of(&id).is_empty() && world.mapping(&id, SERVER).is_some());
    world.remove_mapping(&mapping);
    assert!(world.mapping(&id, SERVER).is_none());
}

#[test]
fn late_end_does_not_undo_later_changes() {
    let mut world = world();
    let id = volume(&mut world, VolumeStatus::Creating);
    world.set_status(&id, VolumeStatus::Error);
    world.end_create(&id, false);
    assert_eq!(status(&world, &id), VolumeStatus::Error);
    world.end_delete("gone", true);
    world.end_extend("gone", false);
}

#[test]
fn failed_extension_retains_size() {
    for (before, failed, after, size) in [
        (VolumeStatus::Available, false, VolumeStatus::Available, 2),
        (VolumeStatus::InUse, false, VolumeStatus::InUse, 2),
        (VolumeStatus::InUse, true, VolumeStatus::ErrorExtending, 1),
    ] {
        let mut world = world();
        let id = volume(&mut world, before);
        world.begin_extend(&id, 2, true).expect("it can be extended");
        assert_eq!(status(&world, &id), VolumeStatus::Extending);
        world.end_extend(&id, failed);
        assert_eq!(
            (status(&world, &id), world.volume(&id).expect("it is there").size),
            (after, size)
        );
    }
}

#[test]
fn last_detach_makes_volume_available() {
    let mut world = world();
    let new = NewVolume {
        size: Some(1),
        volume_type: Some("shared".to_owned()),
        ..NewVolume::default()
    };
    let id = world.begin_create(new).expect("a volume is made").id;
    world.end_create(&id, false);
    for server in [SERVER, OTHER] {
        let mapping = attach(&mut world, server, &id);
        world.connect(&mapping.attachment_id).expect("the attachment is there");
        world.end_attach(&mapping, None);
    }
    for (server, after) in [(SERVER, VolumeStatus::InUse), (OTHER, VolumeStatus::Available)] {
        let mapping = detach(&mut world, server, &id);
        world.end_detach(&mapping);
        world.remove_mapping(&mapping);
        assert_eq!(status(&world, &id), after);
    }
}

#[test]
fn device_names_fill_gaps() {
    let mut world = world();
    let mut names = Vec::new();
    for _ in 0..27 {
        let id = volume(&mut world, VolumeStatus::Available);
        let mapping = attach(&mut world, SERVER, &id);
        names.push((mapping.device.clone(), mapping));
    }
    assert_eq!((names[0].0.as_str(), names[24].0.as_str()), ("/dev/vdb", "/dev/vdz"));
    assert_eq!((names[25].0.as_str(), names[26].0.as_str()), ("/dev/vdaa", "/dev/vdab"));
    world.fail_attach(&names[3].1);
    let id = volume(&mut world, VolumeStatus::Available);
    let again = attach(&mut world, SERVER, &id);
    assert_eq!(again.device, "/dev/vde");
    let id = volume(&mut world, VolumeStatus::Available);
    let taken = NewMapping {
        device: Some("/dev/vde".to_owned()),
        ..wish()
    };
    assert_eq!(
        world
            .begin_attach(SERVER, &id, taken, "req-1")
            .expect_err("it is taken")
            .status,
        409
    );
}

#[test]
fn restore_omits_mappings_of_removed_servers() {
    let mut before = world();
    let id = volume(&mut before, VolumeStatus::Available);
    let mapping = attach(&mut before, SERVER, &id);
    before.connect(&mapping.attachment_id).expect("the attachment is there");
    before.end_attach(&mapping, None);
    let mut same = world();
    same.restore(before.state());
    assert_eq!(same.state(), before.state());
    let mut other = World::new(world().rules, Sources::system());
    other.restore(before.state());
    assert!(other.mappings_of(&id).is_empty());
    assert_eq!(other.attachments_of(&id).len(), 1, "Cinder's record stays");
}

/// Attaches a volume completely.
fn attached(world: &mut World, server: &str, id: &str) -> Mapping {
    let mapping = attach(world, server, id);
    world.connect(&mapping.attachment_id).expect("the attachment is there");
    assert!(world.end_attach(&mapping, None).is_none());
    mapping
}

fn set_state(world: &mut World, server: &str, vm_state: &str) {
    world
        .set_server_state(server, vm_state, None)
        .expect("the server is there");
}

#[test]
fn offloading_reserves_volumes_until_unshelving() {
    let mut world = world();
    let id = volume(&mut world, VolumeStatus::Available);
    let before = attached(&mut world, SERVER, &id).attachment_id;

    set_state(&mut world, SERVER, "shelved");
    assert_eq!(status(&world, &id), VolumeStatus::InUse);

    set_state(&mut world, SERVER, "shelved_offloaded");
    let [attachment] = world.attachments_of(&id) else {
        panic!("one attachment: {:?}", world.attachments_of(&id))
    };
    assert_eq!(status(&world, &id), VolumeStatus::Reserved);
    assert_eq!(
        (attachment.status, attachment.connected, attachment.server_id.as_deref()),
        (AttachmentStatus::Reserved, false, Some(SERVER))
    );
    let reserved = attachment.id.clone();
    assert_ne!(reserved, before);
    assert_eq!(
        world.mapping(&id, SERVER).expect("Nova's record").attachment_id,
        reserved
    );

    set_state(&mut world, SERVER, "active");
    let [attachment] = world.attachments_of(&id) else {
        panic!("one attachment: {:?}", world.attachments_of(&id))
    };
    assert_eq!(status(&world, &id), VolumeStatus::InUse);
    assert_eq!(
        (attachment.id.as_str(), attachment.status, attachment.connected),
        (reserved.as_str(), AttachmentStatus::Attached, true)
    );
}

#[test]
fn offloading_ignores_other_servers_of_multiattach_volumes() {
    let mut world = world();
    let new = NewVolume {
        size: Some(1),
        volume_type: Some("shared".to_owned()),
        ..NewVolume::default()
    };
    let id = world.begin_create(new).expect("a volume is made").id;
    world.end_create(&id, false);
    for server in [SERVER, OTHER] {
        attached(&mut world, server, &id);
    }
    for (server, after) in [(SERVER, VolumeStatus::InUse), (OTHER, VolumeStatus::Reserved)] {
        set_state(&mut world, server, "shelved_offloaded");
        assert_eq!(status(&world, &id), after);
    }
    set_state(&mut world, OTHER, "active");
    assert_eq!(status(&world, &id), VolumeStatus::InUse);
}

#[test]
fn offloading_waits_for_attach_and_detach() {
    let mut world = world();
    let (coming, going) = (
        volume(&mut world, VolumeStatus::Available),
        volume(&mut world, VolumeStatus::Available),
    );
    attached(&mut world, SERVER, &going);
    let (coming_mapping, going_mapping) = (attach(&mut world, SERVER, &coming), detach(&mut world, SERVER, &going));
    set_state(&mut world, SERVER, "shelved_offloaded");

    world
        .connect(&coming_mapping.attachment_id)
        .expect("the attachment is there");
    world.end_attach(&coming_mapping, None);
    assert_eq!(status(&world, &coming), VolumeStatus::Reserved);
    assert_ne!(world.attachments_of(&coming)[0].id, coming_mapping.attachment_id);

    assert_eq!(status(&world, &going), VolumeStatus::Detaching);
    world.end_detach(&going_mapping);
    world.remove_mapping(&going_mapping);
    assert_eq!(status(&world, &going), VolumeStatus::Available);
}

#[test]
fn shelved_servers_need_version_2_20() {
    for state in ["shelved", "shelved_offloaded"] {
        let mut world = world();
        let (id, other) = (
            volume(&mut world, VolumeStatus::Available),
            volume(&mut world, VolumeStatus::Available),
        );
        attached(&mut world, SERVER, &id);
        set_state(&mut world, SERVER, state);
        for (version, is_taken) in [(Version(2, 19), false), (Version(2, 20), true)] {
            let new = NewMapping { version, ..wish() };
            let attached = world.begin_attach(SERVER, &other, new, "req-1");
            assert_eq!(attached.is_ok(), is_taken, "{state}, {version}: {attached:?}");
            let caller = Caller { version, ..caller() };
            let detached = world.begin_detach(SERVER, &id, caller, "req-2");
            assert_eq!(detached.is_ok(), is_taken, "{state}, {version}: {detached:?}");
        }
    }
}

#[test]
fn nova_ignores_cinder_failures_of_offloaded_servers() {
    let mut world = world();
    let id = volume(&mut world, VolumeStatus::Available);
    attached(&mut world, SERVER, &id);
    set_state(&mut world, SERVER, "shelved_offloaded");
    let caller = Caller {
        cinder_fails: true,
        ..caller()
    };
    assert!(matches!(
        world.begin_detach(SERVER, &id, caller, "req-1"),
        Ok(NextStep::Done(_))
    ));
    assert!(world.mapping(&id, SERVER).is_none());
    assert_eq!(status(&world, &id), VolumeStatus::Reserved);
}
