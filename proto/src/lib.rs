// SPDX-License-Identifier: Apache-2.0
//! The wire contracts: CSI 1.13 and the kubelet's plugin registration.
//!
//! Everything here is generated from the `.proto` files beside this crate when it is built. `Debug` of every request that
//! carries a secret prints `<redacted>` in its place. Volume contexts print the values of known keys only. RPCs that a service does
//! not implement answer `UNIMPLEMENTED`.

mod context;

/// The Container Storage Interface.
pub mod csi {
    /// Version 1, as of release 1.13.
    #[allow(
        unreachable_pub,
        rust_2018_idioms,
        clippy::all,
        clippy::pedantic,
        rustdoc::all,
        reason = "generated"
    )]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/csi.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/redacted.rs"));
    }
}

/// Registration of plugins with the kubelet.
pub mod pluginregistration {
    /// Version 1.
    #[allow(
        unreachable_pub,
        rust_2018_idioms,
        clippy::all,
        clippy::pedantic,
        rustdoc::all,
        reason = "generated"
    )]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/pluginregistration.rs"));

        /// `PluginInfo.type` of a CSI driver.
        pub const CSI_PLUGIN: &str = "CSIPlugin";
    }
}

/// A moment, as the messages write it.
pub use prost_types::Timestamp;

/// Both interfaces and what they import, as an encoded `google.protobuf.FileDescriptorSet`, all options included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests;
