//! Models of what surrounds the driver, for random faults in simulated time.

pub mod machine;
