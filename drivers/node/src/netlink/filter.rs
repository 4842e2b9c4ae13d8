//! Programs that decide which packets enter the host by an interface: classic BPF in the qdisc `clsact`
//! (linux/pkt_cls.h). The kernel runs them before a bridge or Open vSwitch takes the packet.

use rtnetlink::packet_core::DefaultNla;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcMessage, TcOption,
};

use super::{Netlink, NetlinkError};

/// `TC_H_CLSACT`, the handle of the qdisc's parent.
const CLSACT: u32 = 0xffff_fff1;
/// `TC_H_MAJ(TC_H_CLSACT) | TC_H_MIN_INGRESS`: packets that enter the host.
const INGRESS: u32 = 0xffff_fff2;
/// The handle of the filter.
const HANDLE: u32 = 1;
/// Priority 1 and `htons(ETH_P_ALL)`.
const PRIORITY_AND_PROTOCOL: u32 = (1 << 16) | (0x0003_u16.to_be() as u32);
/// `TCA_BPF_OPS_LEN`, `TCA_BPF_OPS`.
const OPS_LEN: u16 = 4;
const OPS: u16 = 5;
/// `BPF_MAXINSNS`.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// An instruction of classic BPF (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if a comparison is true.
    pub jump_true: u8,
    /// Instructions to skip if it is false.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

impl Instruction {
    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.code.to_ne_bytes());
        bytes[2] = self.jump_true;
        bytes[3] = self.jump_false;
        bytes[4..].copy_from_slice(&self.operand.to_ne_bytes());
        bytes
    }
}

fn bytes(program: &[Instruction]) -> Vec<u8> {
    program.iter().flat_map(|instruction| instruction.bytes()).collect()
}

fn message(index: u32, handle: u32, parent: u32, kind: &str) -> TcMessage {
    let mut message = TcMessage::with_index(i32::try_from(index).unwrap_or_default());
    message.header.handle = handle.into();
    message.header.parent = parent.into();
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

/// The message that makes the qdisc of an interface, which exists once.
pub(super) fn qdisc(index: u32) -> TcMessage {
    message(index, CLSACT & 0xffff_0000, CLSACT, "clsact")
}

/// The message that sets the program of an interface; `None`: it deletes it.
pub(super) fn filter(index: u32, program: Option<&[Instruction]>) -> TcMessage {
    let mut message = message(index, HANDLE, INGRESS, TcFilterBpf::KIND);
    message.header.info = PRIORITY_AND_PROTOCOL;
    if let Some(program) = program {
        let length = u16::try_from(program.len()).unwrap_or(u16::MAX);
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::Other(DefaultNla::new(OPS_LEN, length.to_ne_bytes().to_vec()))),
            TcOption::Bpf(TcFilterBpfOption::Other(DefaultNla::new(OPS, bytes(program)))),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
    }
    message
}

/// The programs of an interface for packets that enter the host, as the kernel holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressProgram(Option<Vec<u8>>);

/// A program that was set.
impl From<&[Instruction]> for IngressProgram {
    fn from(program: &[Instruction]) -> Self {
        Self(Some(bytes(program)))
    }
}

impl IngressProgram {
    /// True if there is any program.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// True if it is this one.
    pub fn is(&self, program: &[Instruction]) -> bool {
        self.0.as_ref().is_some_and(|found| *found == bytes(program))
    }
}

impl Netlink {
    /// The program of an interface for packets that enter the host.
    pub fn ingress_program(&mut self, index: u32) -> Result<IngressProgram, NetlinkError> {
        let mut request = TcMessage::with_index(i32::try_from(index).unwrap_or_default());
        request.header.parent = INGRESS.into();
        let request = RouteNetlinkMessage::GetTrafficFilter(request);
        let found = self.dump("list the filters of an interface", &request, |message| match message {
            RouteNetlinkMessage::NewTrafficFilter(message) => program(&message),
            _ => None,
        });
        // Without such a qdisc the list is empty.
        Ok(IngressProgram(found?.into_iter().next()))
    }
}

fn program(message: &TcMessage) -> Option<Vec<u8>> {
    use rtnetlink::packet_core::Nla as _;
    message.attributes.iter().find_map(|attribute| {
        let TcAttribute::Options(options) = attribute else { return None };
        options.iter().find_map(|option| {
            let TcOption::Bpf(TcFilterBpfOption::Other(found)) = option else { return None };
            let mut value = vec![0; found.value_len()];
            found.emit_value(&mut value);
            (found.kind() == OPS).then_some(value)
        })
    })
}
