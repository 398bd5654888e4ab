// SPDX-License-Identifier: Apache-2.0
//! The way from the static programs to a cloud: names, certificates, proxies and catalogues, as people have them.
//!
//! Only static builds show how names are resolved without glibc, and only files from other programs show whether they are
//! accepted.

mod catalogue;
mod certificates;
mod names;
mod proxy;
mod servers;
mod site;
