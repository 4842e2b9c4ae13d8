//! The command of a switch in parts: a change sends the parts that differ, and a [`Head`] that names them.
//!
//! A part is named by the hash of its payload, so a stored part never changes. The root part names the switch part
//! and up to 16 groups, a group names up to 16 blocks, and a block has up to 16 VLANs. A hexadecimal digit of a VID
//! selects the group, the next one the block.

use std::array;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sha2::{Digest, Sha256};

use crate::{
    Command, Decision, Desired, Device, FabricDesired, FabricPort, FabricVlan, FabricVlans, FabricVrf,
    Generation, MessageError, PayloadKind, PortBefore, PortMode, Transaction, VlanSet, decode,
};

/// The name of a part: SHA-256 of its exact payload, the first 16 bytes. On the wire 22 characters of base64url
/// without padding, a legal token of a subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartHash([u8; 16]);

/// A text is not a [`PartHash`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the hash of a part: 22 characters of base64url")]
pub struct PartHashError(String);

impl PartHash {
    /// The hash of a payload.
    pub fn of(payload: &[u8]) -> Self {
        let digest = Sha256::digest(payload);
        Self(array::from_fn(|at| digest[at]))
    }
}

impl fmt::Display for PartHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 22];
        let length = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text[..length]).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for PartHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PartHash {
    type Err = PartHashError;
    fn from_str(text: &str) -> Result<Self, PartHashError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| PartHashError(text.chars().take(64).collect()))
    }
}

impl Serialize for PartHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for PartHash {
    fn schema_name() -> Cow<'static, str> {
        "PartHash".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[A-Za-z0-9_-]{22}$",
            "description": "SHA-256 of the payload of a part, the first 16 bytes, in base64url without padding."
        })
    }
}

/// A command whose desired state is in parts, kept as the last message of its subject in `ENO_COMMANDS`. A driver gets
/// heads if each of its processes announces `parts`, else each command is a whole [`Command`].
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    schema_version: HeadVersion,
    /// The driver that the command is for.
    pub driver: String,
    /// The target: the name of a FabricDevice.
    pub target: String,
    /// The generation of this command.
    pub generation: HeadGeneration,
    /// What is desired.
    pub desired: HeadDesired,
    /// Set when several targets change together or not at all.
    pub transaction: Option<HeadTransaction>,
}

/// The version of a head: 2. Programs that know only whole commands refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadVersion;

impl HeadVersion {
    const NUMBER: u64 = 2;
}

impl Serialize for HeadVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(Self::NUMBER)
    }
}

impl<'de> Deserialize<'de> for HeadVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            Self::NUMBER => Ok(Self),
            other => Err(serde::de::Error::custom(format!("a head of version {other}"))),
        }
    }
}

impl JsonSchema for HeadVersion {
    fn schema_name() -> Cow<'static, str> {
        "HeadVersion".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": Self::NUMBER })
    }
}

/// [`Generation`] of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadGeneration {
    /// Number of leadership terms of the engine.
    pub term: u64,
    /// Number of the command within its term.
    pub sequence: u64,
    /// The root part.
    pub hash: PartHash,
}

/// What a head says of the desired state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadDesired {
    /// The kind of target.
    pub kind: PayloadKind,
}

/// [`Transaction`] of a head: what a driver needs of it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadTransaction {
    /// The transaction's id.
    pub id: String,
    /// [`Transaction::decide_within_ms`].
    #[schemars(range(max = Transaction::MAX_DECIDE_WITHIN_MS))]
    pub decide_within_ms: u64,
    /// The decision; absent: none yet.
    pub decision: Option<Decision>,
}

impl Head {
    /// The version of its format.
    pub(crate) const FORMAT: u64 = HeadVersion::NUMBER;

    /// The head of a command. `None`: the command can only be sent whole. It is not of a switch, its hash is that of
    /// an earlier version, or its transaction has no `decideWithinMs`.
    pub fn of(command: &Command) -> Option<Self> {
        let Desired::Fabric(_) = &command.desired else { return None };
        let transaction = match &command.transaction {
            Some(all) => Some(HeadTransaction {
                id: all.id.clone(),
                decide_within_ms: all.decide_within_ms?,
                decision: all.decision,
            }),
            None => None,
        };
        let Generation { term, sequence, hash } = &command.generation;
        Some(Self {
            schema_version: HeadVersion,
            driver: command.driver.clone(),
            target: command.target.clone(),
            generation: HeadGeneration { term: *term, sequence: *sequence, hash: hash.parse().ok()? },
            desired: HeadDesired { kind: PayloadKind::Fabric },
            transaction,
        })
    }

    /// Its generation, as reports have it.
    pub fn generation(&self) -> Generation {
        let HeadGeneration { term, sequence, hash } = self.generation;
        Generation { term, sequence, hash: hash.to_string() }
    }

    /// The command with the desired state that its parts make.
    pub fn command(self, desired: FabricDesired) -> Command {
        let generation = self.generation();
        let transaction = self.transaction.map(|of| Transaction {
            id: of.id,
            participants: Vec::new(),
            deadline: String::new(),
            decide_within_ms: Some(of.decide_within_ms),
            decision: of.decision,
        });
        Command {
            driver: self.driver,
            target: self.target,
            generation,
            desired: Desired::Fabric(desired),
            transaction,
        }
    }
}

/// A message on the subject of a target's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandMessage {
    /// With its desired state.
    Whole(Box<Command>),
    /// With a desired state in parts.
    Head(Head),
}

/// A part of the desired state of a switch, kept in `ENO_PARTS` under `eno.v1.part.<driver>.<target>.<hash>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "part", rename_all = "lowercase")]
pub enum Part {
    /// What is not per VLAN.
    Switch(Box<SwitchPart>),
    /// Names all other parts of a state.
    Root(RootPart),
    /// Names blocks.
    Group(GroupPart),
    /// A block.
    Vlans(VlansPart),
}

/// [`FabricDesired`] without its VLANs.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPart {
    /// [`FabricDesired::cluster`].
    #[schemars(regex(pattern = r"^[a-z0-9]{1,8}$"))]
    pub cluster: String,
    /// [`FabricDesired::cluster_uid`].
    #[schemars(length(min = 1, max = 64))]
    pub cluster_uid: Option<String>,
    /// [`FabricDesired::device`].
    pub device: Device,
    /// [`FabricDesired::vrfs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<FabricVrf>,
    /// All listed ports, ascending by `name`, each once.
    pub ports: Vec<SwitchPort>,
    /// [`FabricDesired::lookup`].
    #[schemars(length(min = 1, max = 64))]
    pub lookup: Option<String>,
}

impl SwitchPart {
    fn of(desired: &FabricDesired) -> Self {
        let port = |port: &FabricPort| SwitchPort {
            name: port.name.clone(),
            lag: port.lag.clone(),
            mode: port.mode,
            closed: port.closed,
            before: port.before.clone(),
        };
        Self {
            cluster: desired.cluster.clone(),
            cluster_uid: desired.cluster_uid.clone(),
            device: desired.device.clone(),
            vrfs: desired.vrfs.clone(),
            ports: desired.ports.iter().map(port).collect(),
            lookup: desired.lookup.clone(),
        }
    }
}

/// [`FabricPort`] without its VLANs.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPort {
    /// [`FabricPort::name`].
    pub name: String,
    /// [`FabricPort::lag`].
    pub lag: Option<String>,
    /// [`FabricPort::mode`].
    #[serde(default)]
    pub mode: PortMode,
    /// [`FabricPort::closed`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// [`FabricPort::before`].
    pub before: Option<PortBefore>,
}

/// The root of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RootPart {
    /// The switch part.
    pub switch: PartHash,
    /// The groups that are not empty, by the highest hexadecimal digit of their VIDs.
    #[schemars(schema_with = "by_digit")]
    pub blocks: BTreeMap<Digit, PartHash>,
}

/// Up to 16 blocks with the same highest hexadecimal digit of their VIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPart {
    /// The blocks that are not empty, by the middle hexadecimal digit of their VIDs.
    #[schemars(schema_with = "by_digit")]
    pub blocks: BTreeMap<Digit, PartHash>,
}

impl GroupPart {
    fn by_index(&self) -> Blocks {
        self.blocks.iter().fold([None; DIGITS], |mut all, (digit, hash)| {
            all[usize::from(digit.0)] = Some(*hash);
            all
        })
    }
}

fn by_digit(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": { "pattern": "^[0-9a-f]$" },
        "additionalProperties": generator.subschema_for::<PartHash>(),
    })
}

/// A hexadecimal digit of a VID, 0 to 15. On the wire a character of `[0-9a-f]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digit(u8);

impl Digit {
    fn split(block: u8) -> (usize, usize) {
        (usize::from(block >> 4), usize::from(block & 15))
    }
}

impl Serialize for Digit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Digit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |text: &str| (text.len() == 1).then(|| u8::from_str_radix(text, 16).ok()).flatten();
        digit(&text).map(Self).ok_or_else(|| serde::de::Error::custom("a key is not a hexadecimal digit"))
    }
}

/// Up to 16 VLANs whose VIDs differ in the lowest hexadecimal digit, and the ports that carry them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WireBlock", into = "WireBlock")]
pub struct VlansPart {
    /// VID >> 4.
    block: u8,
    vlans: Option<Arc<[FabricVlan]>>,
    /// By name, the VLANs of the block that a port carries: bit 0 is the lowest VID.
    ports: BTreeMap<String, u16>,
}

/// [`VlansPart`] on the wire.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct WireBlock {
    /// The lowest VID of the block, a multiple of 16.
    #[schemars(range(max = 4080))]
    first: u16,
    /// The VLANs that are to exist, ascending by VID, each once.
    vlans: FabricVlans,
    /// The VLANs of the block that ports carry, by the name of the port. Ports without any are left out.
    ports: BTreeMap<String, VlanSet>,
}

impl JsonSchema for VlansPart {
    fn schema_name() -> Cow<'static, str> {
        "VlansPart".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WireBlock::json_schema(generator)
    }
}

impl From<VlansPart> for WireBlock {
    fn from(part: VlansPart) -> Self {
        let mut vlans = FabricVlans::new();
        vlans.set_block(part.block, part.vlans);
        let set = |bits| {
            let mut set = VlanSet::EMPTY;
            set.set_bits(part.block, bits);
            set
        };
        let ports = part.ports.into_iter().map(|(name, bits)| (name, set(bits)));
        Self { first: u16::from(part.block) << 4, vlans, ports: ports.collect() }
    }
}

impl TryFrom<WireBlock> for VlansPart {
    type Error = String;

    fn try_from(wire: WireBlock) -> Result<Self, String> {
        let block = u8::try_from(wire.first >> 4).ok().filter(|_| wire.first.is_multiple_of(16));
        let block = block.ok_or_else(|| format!("no block begins with VID {}", wire.first))?;
        let vids = wire.vlans.vids();
        if let Some(other) = vids.iter().find(|vid| vid.block() != block) {
            return Err(format!("VLAN {other} is not in the block of VID {}", wire.first));
        }
        if let Some((port, vlans)) = wire.ports.iter().find(|(_, vlans)| !vlans.is_subset(&vids)) {
            return Err(format!("port {port} carries VLANs that the block does not have: {vlans}"));
        }
        let ports = wire.ports.into_iter().map(|(name, vlans)| (name, vlans.bits(block)));
        Ok(Self { block, vlans: wire.vlans.block(block).cloned(), ports: ports.collect() })
    }
}

impl Part {
    /// Its payload. The hash of the payload names the part.
    pub fn payload(&self) -> Vec<u8> {
        // It has no map with keys that are not texts, the only thing that JSON can't express.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn switch(desired: &FabricDesired) -> Self {
        Self::Switch(Box::new(SwitchPart::of(desired)))
    }

    /// `None`: the block is empty.
    fn block(desired: &FabricDesired, block: u8) -> Option<Self> {
        let ports = desired.ports.iter().map(|port| (&port.name, port.vlans.bits(block)));
        let ports: BTreeMap<String, u16> =
            ports.filter(|(_, bits)| *bits != 0).map(|(name, bits)| (name.clone(), bits)).collect();
        let vlans = desired.vlans.block(block).cloned();
        let is_there = vlans.is_some() || !ports.is_empty();
        is_there.then_some(Self::Vlans(VlansPart { block, vlans, ports }))
    }
}

/// Why a payload is not the part that it is named as. It does not help to read it again.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The payload has another hash.
    #[error("the payload of part {0} has another hash")]
    Hash(PartHash),
    /// The payload is no part.
    #[error("part {0} can't be read: {1}")]
    Message(PartHash, MessageError),
}

/// Decodes the payload of the part of this name.
pub fn decode_part(hash: PartHash, payload: &[u8]) -> Result<Part, PartError> {
    if PartHash::of(payload) != hash {
        return Err(PartError::Hash(hash));
    }
    let part = decode(payload).map_err(|error| PartError::Message(hash, error))?;
    match &part {
        Part::Switch(switch) if !switch.ports.is_sorted_by(|a, b| a.name < b.name) => {
            let error = MessageError::Schema {
                message: "part",
                path: "/ports".into(),
                reason: "the ports are not ascending by name, each once".into(),
            };
            Err(PartError::Message(hash, error))
        }
        _ => Ok(part),
    }
}

const DIGITS: usize = 16;

/// The hashes of all parts of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PartHash,
    switch: PartHash,
    groups: [Option<Arc<Group>>; DIGITS],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    hash: PartHash,
    blocks: Blocks,
}

type Blocks = [Option<PartHash>; DIGITS];

/// The entries that are there, by their digits.
fn entries<T>(all: &[Option<T>; DIGITS], hash: impl Fn(&T) -> PartHash) -> BTreeMap<Digit, PartHash> {
    (0..).map(Digit).zip(all).filter_map(|(at, one)| Some((at, hash(one.as_ref()?)))).collect()
}

impl Group {
    /// `None`: there is no block in it.
    fn of(blocks: &Blocks) -> Option<Self> {
        let is_there = blocks.iter().any(Option::is_some);
        is_there.then(|| Self { hash: PartHash::of(&Self::part(blocks).payload()), blocks: *blocks })
    }

    fn part(blocks: &Blocks) -> Part {
        Part::Group(GroupPart { blocks: entries(blocks, |hash| *hash) })
    }
}

impl Tree {
    /// The tree of a state.
    pub fn of(desired: &FabricDesired) -> Self {
        let switch = PartHash::of(&Part::switch(desired).payload());
        let all = desired.ports.iter().fold(desired.vlans.vids(), |all, port| all.union(&port.vlans));
        Self::with_blocks(switch, array::from_fn(|_| None), desired, &all)
    }

    /// The tree of `new`, when `self` is the tree of `old`. Only parts that differ are encoded.
    #[must_use]
    pub fn updated(&self, old: &FabricDesired, new: &FabricDesired) -> Self {
        let switch =
            if is_same_switch(old, new) { self.switch } else { PartHash::of(&Part::switch(new).payload()) };
        let mut changed = new.vlans.changed_since(&old.vlans);
        let (before, after) = (carried(old), carried(new));
        for (name, vlans) in &after {
            let former = before.get(name).copied().unwrap_or(&VlanSet::EMPTY);
            if former != *vlans {
                changed = changed.union(&former.symmetric_difference(vlans));
            }
        }
        for (_, vlans) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            changed = changed.union(vlans);
        }
        if switch == self.switch && changed.is_empty() {
            return self.clone();
        }
        Self::with_blocks(switch, self.groups.clone(), new, &changed)
    }

    /// With the blocks of `desired` that have a VLAN of `changed`, and all others from `groups`.
    fn with_blocks(
        switch: PartHash,
        mut groups: [Option<Arc<Group>>; DIGITS],
        desired: &FabricDesired,
        changed: &VlanSet,
    ) -> Self {
        let mut touched: BTreeMap<usize, Blocks> = BTreeMap::new();
        for block in changed.blocks() {
            let (high, low) = Digit::split(block);
            let blocks = touched
                .entry(high)
                .or_insert_with(|| groups[high].as_ref().map_or([None; DIGITS], |group| group.blocks));
            blocks[low] = Part::block(desired, block).map(|part| PartHash::of(&part.payload()));
        }
        for (high, blocks) in touched {
            groups[high] = Group::of(&blocks).map(Arc::new);
        }
        let root = PartHash::of(&Self::root_part(switch, &groups).payload());
        Self { root, switch, groups }
    }

    fn root_part(switch: PartHash, groups: &[Option<Arc<Group>>; DIGITS]) -> Part {
        Part::Root(RootPart { switch, blocks: entries(groups, |group| group.hash) })
    }

    /// The hash of the root part, which stands for the whole state.
    pub fn root(&self) -> PartHash {
        self.root
    }

    /// All parts, each once.
    pub fn parts(&self) -> impl Iterator<Item = PartHash> {
        let groups = self.groups.iter().flatten();
        let groups = groups.flat_map(|group| group.blocks.iter().flatten().copied().chain([group.hash]));
        [self.switch, self.root].into_iter().chain(groups)
    }

    /// A part, of the desired state that the tree is of. `None`: the tree does not name it.
    pub fn part(&self, desired: &FabricDesired, part: PartHash) -> Option<Part> {
        if part == self.root {
            return Some(Self::root_part(self.switch, &self.groups));
        }
        if part == self.switch {
            return Some(Part::switch(desired));
        }
        (0u8..).zip(&self.groups).find_map(|(high, group)| {
            let group = group.as_ref()?;
            if part == group.hash {
                return Some(Group::part(&group.blocks));
            }
            let low = (0u8..).zip(group.blocks).find(|(_, block)| *block == Some(part))?.0;
            Part::block(desired, high << 4 | low)
        })
    }

    /// The payload of a part, encoded from the desired state that the tree is of. `None`: the tree does not name the
    /// part, or `desired` is another state. A sender checks the payload by [`decode_part`], as a reader does.
    pub fn payload(&self, desired: &FabricDesired, part: PartHash) -> Option<Vec<u8>> {
        Some(self.part(desired, part)?.payload()).filter(|payload| PartHash::of(payload) == part)
    }

    /// The parts that are here and not in `other`, and those that are only there. What both have costs nothing.
    pub fn difference(&self, other: &Self) -> (Vec<PartHash>, Vec<PartHash>) {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let mut compare = |own: Option<PartHash>, others: Option<PartHash>| {
            if own != others {
                here.extend(own);
                there.extend(others);
            }
            own != others
        };
        if !compare(Some(self.root), Some(other.root)) {
            return (here, there);
        }
        compare(Some(self.switch), Some(other.switch));
        for (own, others) in self.groups.iter().zip(&other.groups) {
            let hash = |group: &Option<Arc<Group>>| group.as_ref().map(|group| group.hash);
            if compare(hash(own), hash(others)) {
                let blocks =
                    |group: &Option<Arc<Group>>| group.as_ref().map_or([None; DIGITS], |group| group.blocks);
                for (own, others) in blocks(own).into_iter().zip(blocks(others)) {
                    compare(own, others);
                }
            }
        }
        (here, there)
    }
}

/// The VLANs of ports by their names.
fn carried(desired: &FabricDesired) -> BTreeMap<&str, &VlanSet> {
    desired.ports.iter().map(|port| (port.name.as_str(), &port.vlans)).collect()
}

/// True when the switch parts of both are the same.
fn is_same_switch(old: &FabricDesired, new: &FabricDesired) -> bool {
    let same_port = |(a, b): (&FabricPort, &FabricPort)| {
        (&a.name, &a.lag, a.mode, a.closed, &a.before) == (&b.name, &b.lag, b.mode, b.closed, &b.before)
    };
    (&old.cluster, &old.cluster_uid, &old.device, &old.vrfs, &old.lookup)
        == (&new.cluster, &new.cluster_uid, &new.device, &new.vrfs, &new.lookup)
        && old.ports.len() == new.ports.len()
        && old.ports.iter().zip(&new.ports).all(same_port)
}

/// Why parts make no desired state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// These are not there. Parts that they name may lack too.
    #[error("{} parts are lacking", .0.len())]
    Lacking(Vec<PartHash>),
    /// They contradict each other. No further part helps.
    #[error("the parts of the command contradict each other: {0}")]
    Invalid(String),
}

/// The desired state of a root part, and its tree. `base`: another state with its tree; what both have is shared, and
/// is not asked of `find`.
pub fn assemble<'p>(
    root: PartHash,
    find: impl Fn(PartHash) -> Option<&'p Part>,
    base: Option<(&Tree, &FabricDesired)>,
) -> Result<(Tree, FabricDesired), Incomplete> {
    if let Some((tree, desired)) = base.filter(|(tree, _)| tree.root == root) {
        return Ok((tree.clone(), desired.clone()));
    }
    let invalid = |hash: PartHash, what: &str| Incomplete::Invalid(format!("part {hash} is not {what}"));
    let top = match find(root) {
        Some(Part::Root(part)) => part,
        Some(_) => return Err(invalid(root, "a root part")),
        None => return Err(Incomplete::Lacking(vec![root])),
    };
    let mut lacking = Vec::new();
    let switch = match base.filter(|(tree, _)| tree.switch == top.switch) {
        Some((_, desired)) => Some(SwitchPart::of(desired)),
        None => match find(top.switch) {
            Some(Part::Switch(part)) => Some((**part).clone()),
            Some(_) => return Err(invalid(top.switch, "a switch part")),
            None => {
                lacking.push(top.switch);
                None
            }
        },
    };
    // The blocks that differ from those of the base: `None` is empty.
    let mut changed: BTreeMap<u8, Option<&VlansPart>> = BTreeMap::new();
    let mut groups: [Option<Arc<Group>>; DIGITS] = array::from_fn(|_| None);
    for (high, group) in (0u8..).zip(&mut groups) {
        let before = base.and_then(|(tree, _)| tree.groups[usize::from(high)].as_ref());
        let hash = top.blocks.get(&Digit(high)).copied();
        if before.map(|group| group.hash) == hash {
            *group = before.cloned();
            continue;
        }
        let blocks = match hash.map(|hash| (hash, find(hash))) {
            None => [None; DIGITS],
            Some((_, Some(Part::Group(part)))) => part.by_index(),
            Some((hash, Some(_))) => return Err(invalid(hash, "a group")),
            Some((hash, None)) => {
                lacking.push(hash);
                continue;
            }
        };
        *group = hash.map(|hash| Arc::new(Group { hash, blocks }));
        let former = before.map_or([None; DIGITS], |group| group.blocks);
        for ((low, hash), _) in (0u8..).zip(blocks).zip(former).filter(|((_, hash), former)| hash != former) {
            let block = high << 4 | low;
            match hash.map(|hash| (hash, find(hash))) {
                None => {
                    changed.insert(block, None);
                }
                Some((_, Some(Part::Vlans(part)))) if part.block == block => {
                    changed.insert(block, Some(part));
                }
                Some((hash, Some(_))) => {
                    return Err(invalid(hash, &format!("the block of VID {}", u16::from(block) << 4)));
                }
                Some((hash, None)) => lacking.push(hash),
            }
        }
    }
    let switch = switch.filter(|_| lacking.is_empty()).ok_or(Incomplete::Lacking(lacking))?;
    let desired = with_changed_blocks(switch, &changed, base.map(|(_, desired)| desired))?;
    Ok((Tree { root, switch: top.switch, groups }, desired))
}

/// The desired state of a switch part, with these blocks, and all others from `base`.
fn with_changed_blocks(
    switch: SwitchPart,
    changed: &BTreeMap<u8, Option<&VlansPart>>,
    base: Option<&FabricDesired>,
) -> Result<FabricDesired, Incomplete> {
    let mut vlans = base.map(|base| base.vlans.clone()).unwrap_or_default();
    let mut carried: BTreeMap<&str, VlanSet> = base
        .into_iter()
        .flat_map(|base| base.ports.iter().map(|port| (port.name.as_str(), port.vlans.clone())))
        .collect();
    for (block, part) in changed {
        vlans.set_block(*block, part.and_then(|part| part.vlans.clone()));
        for vlans in carried.values_mut() {
            vlans.set_bits(*block, 0);
        }
        for (name, bits) in part.iter().flat_map(|part| &part.ports) {
            carried.entry(name).or_default().set_bits(*block, *bits);
        }
    }
    let ports = switch.ports.into_iter().map(|port| FabricPort {
        vlans: carried.remove(port.name.as_str()).unwrap_or_default(),
        name: port.name,
        lag: port.lag,
        mode: port.mode,
        closed: port.closed,
        before: port.before,
    });
    let ports = ports.collect();
    if let Some((name, vlans)) = carried.iter().find(|(_, vlans)| !vlans.is_empty()) {
        let reason = format!("port {name} carries the VLANs {vlans} and is not listed");
        return Err(Incomplete::Invalid(reason));
    }
    Ok(FabricDesired {
        cluster: switch.cluster,
        cluster_uid: switch.cluster_uid,
        device: switch.device,
        vrfs: switch.vrfs,
        vlans,
        ports,
        lookup: switch.lookup,
    })
}
