//! Rules of nftables in ENO's own table, `inet eno`, by nfnetlink (linux/netfilter/nf_tables.h).
//!
//! Expressions have the form and the order of attributes in which the kernel lists them, so that rules can be compared.

use std::collections::BTreeMap;

use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, Hook,
    InetHookNumber, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, Register, RuleAttribute,
    RuleMessage, TableAttribute, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use nix::errno::Errno;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use super::{Netlink, NetlinkError};

/// The table, of the family inet.
const TABLE: &str = "eno";
/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// `NF_IP_PRI_MANGLE`: behind connection tracking, before NAT and routing.
const PRIORITY: i32 = -150;
/// `NFTA_CT_DREG`, `NFTA_CT_KEY`, `NFTA_CT_SREG`.
const CT_TARGET: u16 = 1;
const CT_KEY: u16 = 2;
const CT_SOURCE: u16 = 4;

/// An expression of a rule.
type Expression = ListAttribute<ExpressionAttribute>;

/// The expressions of a rule, in the order in which they are evaluated.
pub type MarkRule = Vec<Expression>;

/// What is known of a connection (`enum nft_ct_keys`).
#[derive(Clone, Copy, Debug)]
pub enum Connection {
    /// Bits of its state.
    State = 0,
    /// One byte.
    Direction = 1,
    /// `ct mark`.
    Mark = 3,
}

/// `NF_CT_STATE_BIT(IP_CT_NEW)`.
pub const STATE_NEW: u32 = 8;
/// `IP_CT_DIR_REPLY`.
pub const DIRECTION_REPLY: u8 = 1;

/// A chain of ENO's table. Its place among the hooks of the kernel follows from its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkChain {
    /// Its name, unique in the table.
    pub name: String,
    /// Where its rules are evaluated.
    pub place: MarkPlace,
    /// Its rules; at least one.
    pub rules: Vec<MarkRule>,
}

/// Where rules are evaluated, before the packet is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkPlace {
    /// Packets that come in.
    Incoming,
    /// Packets of the host itself. They are routed again when their mark has changed.
    Own,
}

/// Reads what is known of a connection.
pub fn read_connection(key: Connection) -> Expression {
    connection(vec![be(CT_TARGET, Register::Reg1.into()), be(CT_KEY, key as u32)])
}

/// Makes the value the connection's mark.
pub fn write_connection_mark() -> Expression {
    connection(vec![be(CT_SOURCE, Register::Reg1.into()), be(CT_KEY, Connection::Mark as u32)])
}

/// Reads what is known of a packet.
pub fn read_packet(key: MetaKey) -> Expression {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg1)]).into()
}

/// Makes the value the packet's mark.
pub fn write_packet_mark() -> Expression {
    Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]).into()
}

/// Replaces the value by `(value & mask) ^ flip`.
pub fn change(mask: u32, flip: u32) -> Expression {
    let bytes = |value: u32| DataAttribute::Value(value.to_ne_bytes().to_vec());
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        // NFT_BITWISE_BOOL
        Bitwise::Op(0),
        Bitwise::Mask(bytes(mask)),
        Bitwise::Xor(bytes(flip)),
    ])
    .into()
}

/// Ends the rule unless the value is this one.
pub fn demand(bytes: &[u8]) -> Expression {
    compare(Operator::Equal, bytes)
}

/// Ends the rule if the value is this one.
pub fn refuse(bytes: &[u8]) -> Expression {
    compare(Operator::NotEqual, bytes)
}

fn compare(operator: Operator, bytes: &[u8]) -> Expression {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(bytes.to_vec())),
    ])
    .into()
}

fn connection(attributes: Vec<DefaultNla>) -> Expression {
    Expressions::Other { expression_type: "ct".to_owned(), attributes }.into()
}

fn be(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}

/// Changes of ENO's table that are made together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The operation, for errors.
    operation: String,
    messages: Vec<(NfTablesMessage, u16)>,
}

impl TableChange {
    /// Makes these chains as they are, in the place of earlier ones of their names. `of`: whose they are, for errors.
    pub fn set(of: &str, chains: &[MarkChain]) -> Self {
        let table = vec![TableAttribute::Name(TABLE.to_owned())];
        let mut messages =
            vec![(NfTablesMessage::NewTable(TableMessage { attributes: table }), NLM_F_CREATE)];
        for chain in chains {
            let (kind, hook) = match chain.place {
                MarkPlace::Incoming => ("filter", InetHookNumber::PreRouting),
                MarkPlace::Own => ("route", InetHookNumber::LocalOut),
            };
            let mut attributes = named_chain(&chain.name);
            attributes.push(ChainAttribute::Hook(vec![
                Hook::Number(hook.into()),
                Hook::Priority(PRIORITY.cast_unsigned()),
            ]));
            attributes.push(ChainAttribute::Type(kind.to_owned()));
            messages.push((NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE));
            let of_chain =
                vec![RuleAttribute::Table(TABLE.to_owned()), RuleAttribute::Chain(chain.name.clone())];
            let all = RuleMessage { attributes: of_chain.clone() };
            messages.push((NfTablesMessage::DeleteRule(all), 0));
            for rule in &chain.rules {
                let mut attributes = of_chain.clone();
                attributes.push(RuleAttribute::Expressions(rule.clone()));
                let rule = NfTablesMessage::NewRule(RuleMessage { attributes });
                messages.push((rule, NLM_F_CREATE | NLM_F_APPEND));
            }
        }
        Self { operation: format!("have {of} mark connections"), messages }
    }

    /// Deletes a chain with its rules.
    pub fn delete(name: &str) -> Self {
        let message = NfTablesMessage::DeleteChain(ChainMessage { attributes: named_chain(name) });
        Self { operation: format!("delete the chain {name} of table {TABLE}"), messages: vec![(message, 0)] }
    }

    /// Deletes the whole table.
    pub fn delete_table() -> Self {
        let attributes = vec![TableAttribute::Name(TABLE.to_owned())];
        let message = NfTablesMessage::DeleteTable(TableMessage { attributes });
        Self { operation: format!("delete the table {TABLE} of nftables"), messages: vec![(message, 0)] }
    }

    /// The operation; completes "can't …".
    pub fn operation(&self) -> &str {
        &self.operation
    }
}

fn named_chain(name: &str) -> Vec<ChainAttribute> {
    vec![ChainAttribute::Table(TABLE.to_owned()), ChainAttribute::Name(name.to_owned())]
}

/// A socket of nfnetlink in one namespace.
#[derive(Debug)]
pub struct Nftables(Netlink);

impl Nftables {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self(Netlink::open_protocol(NETLINK_NETFILTER)?))
    }

    /// The rules of ENO's table by chain; empty without the table, or where the kernel has no nftables. A chain without
    /// rules is not listed.
    pub fn rules(&mut self) -> Result<BTreeMap<String, Vec<MarkRule>>, NetlinkError> {
        let attributes = vec![RuleAttribute::Table(TABLE.to_owned())];
        let request = message(NfTablesMessage::GetRule(RuleMessage { attributes }));
        let mut bytes = serialized(request, super::socket::DUMP, 0);
        let mut found: Vec<(String, MarkRule)> = Vec::new();
        let listed =
            self.0.dump_raw("list ENO's rules of nftables", &mut bytes, &mut found, |found, part| {
                found.extend(rule(part));
            });
        match listed {
            // ENOENT: there is no such table. EINVAL: there is no nftables.
            Err(NetlinkError::Refused { errno: Errno::ENOENT | Errno::EINVAL, .. }) => Ok(BTreeMap::new()),
            Err(error) => Err(error),
            Ok(()) => {
                let mut chains: BTreeMap<String, Vec<MarkRule>> = BTreeMap::new();
                for (chain, rule) in found {
                    chains.entry(chain).or_default().push(rule);
                }
                Ok(chains)
            }
        }
    }

    /// Carries out changes together or not at all.
    pub fn execute(&mut self, changes: &TableChange) -> Result<(), NetlinkError> {
        let bound = |control| {
            let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM);
            NetfilterMessage::new(header, control)
        };
        let last = changes.messages.len().saturating_sub(1);
        let inner = changes.messages.iter().enumerate().map(|(at, (inner, flags))| {
            // An answer to the last one comes behind those to all others.
            let acknowledge = if at == last { NLM_F_ACK } else { 0 };
            (message(inner.clone()), flags | acknowledge)
        });
        let messages = std::iter::once((bound(ControlMessage::BatchBegin), 0))
            .chain(inner)
            .chain([(bound(ControlMessage::BatchEnd), 0)]);
        let messages: Vec<_> = messages.collect();
        // Of the messages only the end of the batch comes behind the last change.
        self.0.transact(&changes.operation, messages.len() - 2, |sequence| {
            let mut bytes = Vec::new();
            for (number, (message, flags)) in (sequence..).zip(&messages) {
                bytes.extend(serialized(message.clone(), NLM_F_REQUEST | flags, number));
            }
            bytes
        })
    }
}

fn message(inner: NfTablesMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0), inner)
}

fn serialized(message: NetfilterMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(4)];
    message.serialize(&mut bytes);
    bytes
}

/// A listed rule, with its chain. `None`: it can't be decoded, or has no expressions, so it is not ENO's.
fn rule(part: &[u8]) -> Option<(String, MarkRule)> {
    let NetlinkPayload::InnerMessage(NetfilterMessage {
        inner: NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(message)),
        ..
    }) = NetlinkMessage::<NetfilterMessage>::deserialize(part).ok()?.payload
    else {
        return None;
    };
    let (mut chain, mut rule) = (None, None);
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Chain(name) => chain = Some(name),
            RuleAttribute::Expressions(expressions) => rule = Some(expressions),
            _ => {}
        }
    }
    chain.zip(rule)
}
