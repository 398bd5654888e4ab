// SPDX-License-Identifier: Apache-2.0
//! HTTP with OpenStack: the Keystone session, the service catalog, microversions, retries, throttling and faults.

// Times and sizes come from the network, and an overflow would panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod caller_liveness;
pub(crate) mod catalog;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod fault;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod retry;
pub(crate) mod service;
pub(crate) mod throttle;
pub(crate) mod transport;
