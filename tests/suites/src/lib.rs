// SPDX-License-Identifier: Apache-2.0
//! Tests against programs that nobody here wrote: csi-sanity, the Go driver, the kubelet's own way to dial.
//!
//! Every test runs in a [`lab`]: network and mount namespaces of its own with an empty `/dev/disk/by-id` and Nova's metadata
//! address, in which the OpenStack simulator backs volumes with loop devices. Tests run side by side without seeing each
//! other, and what a test leaves behind is an error of that test.

pub mod api;
pub mod chart;
pub mod cloud;
pub mod cluster;
pub mod contracts;
pub mod drivers;
pub mod gateway;
pub mod ginkgo;
pub mod go_manifests;
pub mod host_commands;
pub mod keystone;
pub mod lab;
pub mod life;
pub mod mkfs;
pub mod openstack;
pub mod process;
pub mod programs;
pub mod real_cloud;
pub mod registry;
pub mod sanity;
pub mod scenarios;
pub mod shape;
pub mod simulator;
pub mod syscalls;
