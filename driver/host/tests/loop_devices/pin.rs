// SPDX-License-Identifier: Apache-2.0
//! A device stays what it was found to be for as long as it is held.

use std::fs;

use csi_host::DeviceError;

use crate::lab::{ANY, MIB, OTHER, VOLUME, run};

#[test]
fn no_other_disk_gets_the_number_of_one_that_is_held() {
    run(
        "pin::no_other_disk_gets_the_number_of_one_that_is_held",
        |lab| async move {
            let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
            let pinned = host.pin(&device).await.expect("it is the volume");
            lab.detach(&device);
            let other = lab.volume(OTHER, 64 * MIB).await;
            assert_ne!(other.number, device.number);
            assert_ne!(other.name, device.name);
            drop(pinned);
            // Within the time that a test has: the kernel lets a loop device's file go when the last one has closed the device.
            let file = format!("/sys/block/{}/loop/backing_file", device.name);
            while fs::read_to_string(&file).is_ok_and(|file| file.contains(&format!("{VOLUME}.img"))) {
                tokio::task::yield_now().await;
            }
        },
    );
}

#[test]
fn a_device_that_has_become_another_one_is_not_held() {
    run(
        "pin::a_device_that_has_become_another_one_is_not_held",
        |lab| async move {
            let (host, mut device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
            let backing = lab.at(&format!("{VOLUME}.img"));
            // The number is free then, and the other one gets it if nobody on the machine is quicker.
            for _ in 0..10 {
                lab.detach(&device);
                let other = lab.volume(OTHER, 64 * MIB).await;
                if other.number == device.number {
                    let error = host.pin(&device).await.expect_err("the volume is gone");
                    assert!(matches!(error, DeviceError::NotFound { .. }), "{error}");
                    let now = lab.attach(&backing, VOLUME).await;
                    let error = host.pin(&device).await.expect_err("the volume is another device");
                    assert!(
                        matches!(&error, DeviceError::Moved { now: at, .. } if *at == now.path),
                        "{error}"
                    );
                    return;
                }
                lab.detach(&other);
                device = lab.attach(&backing, VOLUME).await;
            }
            panic!("the number was never given to the other disk");
        },
    );
}

#[test]
fn what_is_held_can_be_formatted() {
    run("pin::what_is_held_can_be_formatted", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let _pinned = host.pin(&device).await.expect("it is the volume");
        let prepared = host.prepare_filesystem(&device, ANY).await.expect("it is empty");
        assert!(prepared.formatted);
    });
}
