//! NETCONF itself (RFC 6241, RFC 6242), independent of any data model's content.

pub mod error;
pub mod framing;
pub mod hello;
pub mod push;
pub mod rpc;
pub mod xml;
