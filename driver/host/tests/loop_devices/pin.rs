// SPDX-License-Identifier: Apache-2.0
//! A pinned device remains the same disk.

use std::fs;

use csi_host::DeviceError;

use crate::lab::{ANY, MIB, OTHER, VOLUME, run};

#[test]
#[ignore = "needs root"]
fn pinned_number_is_not_reused() {
    run("pin::pinned_number_is_not_reused", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let pinned = host.pin(&device).await.expect("it is the volume");
        lab.detach(&device);
        let other = lab.volume(OTHER, 64 * MIB).await;
        assert_ne!(other.number, device.number);
        assert_ne!(other.name, device.name);
        drop(pinned);
        // Waits within the time limit of the test: the kernel releases the file of a loop device after the last
        // close.
        let file = format!("/sys/block/{}/loop/backing_file", device.name);
        while fs::read_to_string(&file).is_ok_and(|file| file.contains(&format!("{VOLUME}.img"))) {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
#[ignore = "needs root"]
fn pin_refuses_replaced_device() {
    run("pin::pin_refuses_replaced_device", |lab| async move {
        let (host, mut device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let backing = lab.at(&format!("{VOLUME}.img"));
        // The number is now free. The other device gets it unless another process on this machine is faster.
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
    });
}

#[test]
#[ignore = "needs root"]
fn pinned_device_can_be_formatted() {
    run("pin::pinned_device_can_be_formatted", |lab| async move {
        let (host, device) = (lab.host(), lab.volume(VOLUME, 64 * MIB).await);
        let _pinned = host.pin(&device).await.expect("it is the volume");
        let prepared = host.prepare_filesystem(&device, ANY).await.expect("it is empty");
        assert!(prepared.formatted);
    });
}
