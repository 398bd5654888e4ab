// SPDX-License-Identifier: Apache-2.0
//! Tests against programs of other projects: csi-sanity, the Go driver, the kubelet's registration client.
//!
//! Every test runs in a [`lab`]: network and mount namespaces with an empty `/dev/disk/by-id` and Nova's metadata
//! address. In it, the OpenStack simulator stores volumes on loop devices. Tests run in parallel and in isolation. A
//! test fails if resources remain.

pub mod api;
pub mod chart;
pub mod cloud;
pub mod cluster;
pub mod contracts;
pub mod documentation;
pub mod drivers;
pub mod expect;
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
