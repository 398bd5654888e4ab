// SPDX-License-Identifier: Apache-2.0
//! Requests and answers: the session with Keystone, versions, repeats, pauses, and what came of each.

pub(crate) mod auth;
pub(crate) mod awaited;
pub(crate) mod body;
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
