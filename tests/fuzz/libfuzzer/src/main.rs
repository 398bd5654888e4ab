// SPDX-License-Identifier: Apache-2.0
//! `FUZZ_TARGET=NAME libfuzzer [options of libFuzzer] CORPUS`.
#![no_main]

use std::sync::LazyLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET is the name of a target");
    let target = TARGETS.iter().find(|target| target.name == name);
    target.expect("FUZZ_TARGET names a target")
});

fuzz_target!(|input: &[u8]| (TARGET.eat)(input));
