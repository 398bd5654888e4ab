// SPDX-License-Identifier: Apache-2.0
//! Tests with loop devices, file systems and mounts of the kernel, each in its own mount namespace. Needs root.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot do its part fails the test; the machine under test is the real one"
)]

mod flaky;
mod format;
mod grow;
mod health;
mod lab;
mod mounts;
mod pin;
mod unfinished;
