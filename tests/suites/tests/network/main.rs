// SPDX-License-Identifier: Apache-2.0
//! Tests the connection of static programs to a cloud: names, certificates, proxies and catalogs of real installations.
//!
//! Only static builds resolve names without glibc, and only files of other programs prove that they are accepted.

mod catalogue;
mod certificates;
mod names;
mod proxy;
mod servers;
mod site;
