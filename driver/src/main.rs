//! The driver's program; everything is in the library.

fn main() {}
