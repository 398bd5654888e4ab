// SPDX-License-Identifier: Apache-2.0
//! gRPC interfaces: CSI 1.13 and the kubelet's plugin registration.
//!
//! The build script generates the code from the `.proto` files of this crate. `Debug` of every request with a secret
//! prints `<redacted>` in its place. Volume contexts print the values of known keys only. RPCs that a service does
//! not implement return `UNIMPLEMENTED`.

mod context;

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

pub use prost_types::Timestamp;

/// Both interfaces and their imports, as an encoded `google.protobuf.FileDescriptorSet` with all options.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests;
