//! The operator that installs the Cinder CSI driver and watches over it.

pub mod args;
pub mod images;
pub mod leader;
pub mod operands;
pub mod render;
pub mod resolve;
