//! Bytes and text of other programs <-> structs. Each file names its RFC or its source.

pub(crate) mod heartbeat;
