//! The NETCONF protocol (RFC 6241, RFC 6242), independent of data models.

pub mod error;
pub mod framing;
pub mod hello;
pub mod push;
pub mod rpc;
pub mod xml;
