//! The desired state of BGP speakers in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{AsRefStr, Display};

use crate::Bfd;

/// What a BGP speaker in the cluster is to know of one BGPSessionGroup; `sessions: None`: nothing.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerDesired {
    /// The name of the BGPSessionGroup, which is that of the target.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// `metadata.uid` of the BGPSessionGroup.
    pub uid: String,
    /// The sessions; absent: the objects of the group must be gone.
    pub sessions: Option<SpeakerSessions>,
}

/// The sessions of one BGPSessionGroup, as its nodes see them.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerSessions {
    /// The speaker.
    pub speaker: Speaker,
    /// The nodes with sessions, by their label `kubernetes.io/hostname`.
    pub hostnames: BTreeSet<String>,
    /// The AS of the nodes.
    #[serde(rename = "localAS")]
    #[schemars(range(min = 1))]
    pub local_as: u32,
    /// The AS of the gateways.
    #[serde(rename = "peerAS")]
    #[schemars(range(min = 1))]
    pub peer_as: u32,
    /// By the name of the speaker's object: the address of a gateway.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" }))]
    pub peers: BTreeMap<String, IpAddr>,
    /// Seconds without a message after which a session ends; at least 3 (RFC 4271, section 4.2).
    #[schemars(range(min = 3))]
    pub hold_time: u16,
    /// Seconds between two KEEPALIVE messages.
    #[schemars(range(min = 1))]
    pub keepalive_time: u16,
    /// Ends a session when BFD does not see the gateway (RFC 5882), by timers as the nodes see them; absent: no BFD.
    pub bfd: Option<Bfd>,
    /// Routes stay while a speaker restarts (RFC 4724).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graceful_restart: bool,
    /// The name of the Secret with the password (RFC 2385) in the namespace of the speaker; never the password.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub password: Option<String>,
}

/// A BGP speaker that is configured by objects of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, AsRefStr, Display, Serialize, Deserialize, JsonSchema)]
pub enum Speaker {
    /// MetalLB: objects of the group `metallb.io`.
    MetalLB,
}

/// The kind of the notes of a driver about objects that announce all addresses to all peers.
pub const ANNOUNCED_TO_ALL: &str = "AnnouncedToAll";
